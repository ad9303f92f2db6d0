"""A SQL table has the very values of the log, or the row is refused with its reason."""

import json
import math
from base64 import b64encode
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.sinks.exact_values import SCHEMA, differing, kept_by, rows
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic

pytestmark = pytest.mark.slow

TEXT = {"postgresql": "{}::text", "mariadb": "CAST({} AS CHAR)", "sqlite": "{}"}
NEVER_REFUSED = ("list", "struct", "time32", "time64", "decimal", "int", "bool", "binary")


async def test_a_value_of_any_type_is_exact_in_sql_or_refused(bench: SqlBench) -> None:
    topic, sink, given = ScriptedTopic("shop.public.exact"), bench.sink(), rows()

    kept = await kept_by(sink, topic, given)

    assert not await differing(sink, topic, kept), "verify calls it equal"
    found = seen_by_the_driver(bench)
    for row in given:
        [(name, value)] = [(name, value) for name, value in row.items() if name != "id"]
        kind = SCHEMA.column(name).type
        if row["id"] not in kept:
            assert not str(kind).startswith(NEVER_REFUSED), (kind, value)
        elif (wanted := as_written(value, kind)) is not None:
            theirs = found[row["id"], name]
            if kind == pa.float32():  # the shortest text of it may be that of another double
                theirs = float(np.float32(theirs))
            assert same(theirs, wanted), (kind, value, theirs)
    await sink.close()


def seen_by_the_driver(bench: SqlBench) -> dict[tuple[int, str], Any]:
    """Past all that we have for reading: the database's own text of each value."""
    names = [name for name in SCHEMA.names if name != "id"]
    chosen = ", ".join(TEXT[bench.kind].format(name) for name in names)
    with bench.engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT id, {chosen} FROM exact").fetchall()
    return {
        (row[0], name): value for row in found for name, value in zip(names, row[1:], strict=True)
    }


def as_written(value: Any, kind: pa.DataType) -> Any:
    """What stands there, the slow and obvious way; None for types whose text is not told here."""
    if pa.types.is_nested(kind):
        return json.dumps(within(value, kind))
    if kind == pa.time64("us"):
        minutes, us = divmod(value, 60 * 10**6)
        return f"{minutes // 60:02}:{minutes % 60:02}:{us // 10**6:02}.{us % 10**6:06}"
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return value if is_number or pa.types.is_integer(kind) else None


def within(value: Any, kind: pa.DataType) -> Any:
    """As JSON has it; moments are left to the other half of the test."""
    if value is None or pa.types.is_temporal(kind):
        return None
    if pa.types.is_list(kind):
        return [within(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: within(value[field.name], field.type) for field in kind}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, str) and wanted[:1] in ("{", "["):
        return alike(json.loads(found), json.loads(wanted))
    if isinstance(wanted, str):
        return str(found) in (wanted, wanted.rstrip("0").rstrip("."))
    if isinstance(wanted, float):
        return bool(math.isnan(wanted) if math.isnan(float(found)) else float(found) == wanted)
    if isinstance(wanted, Decimal):
        return (
            float(found) == float(wanted) if isinstance(found, float) else Decimal(found) == wanted
        )
    return bool(int(found) == wanted)


def alike(found: Any, wanted: Any) -> bool:
    """Nulls that are wanted stand for moments as well."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(
            alike(found[name], each) for name, each in wanted.items()
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(alike, found, wanted))
    return wanted is None or found == wanted
