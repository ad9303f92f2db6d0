"""A table of the lake has the very values of the log, or the row is refused with its reason."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.exact_values import SCHEMA, differing, kept_by, refused_kinds, rows
from tests.sinks.spark.orders import bench_of
from tests.slices import ScriptedTopic

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("format", ["delta", "iceberg", "parquet"])
async def test_a_value_of_any_type_is_exact_in_the_lake_or_refused(
    tmp_path: Path, format: str
) -> None:
    bench = bench_of(tmp_path, format=format)
    topic, sink, given = ScriptedTopic("shop.public.exact"), bench.sink(), rows()

    kept = await kept_by(sink, topic, given)

    refused = {kind for kind, _ in refused_kinds(given, kept)}
    assert refused == {"timestamp[ms]", "timestamp[ms, tz=UTC]"}, "beyond 64 bits of microseconds"
    assert not await differing(sink, topic, kept), "verify calls it equal"
    await sink.close()
    table: Any = bench.table("public.exact") if format != "parquet" else None
    places = {} if table is None else {key: at for at, key in enumerate(table["id"].to_pylist())}
    for row in given if table is not None else ():
        [(name, value)] = [(name, value) for name, value in row.items() if name != "id"]
        kind = SCHEMA.column(name).type
        if row["id"] in kept and (
            is_plain(kind) or (format == "delta" and kind == pa.time64("us"))
        ):
            theirs = table[name][places[row["id"]]].as_py()
            ours = as_text(value) if pa.types.is_time(kind) else value
            assert repr(theirs) == repr(ours), (kind, "another reader sees it otherwise")


def is_plain(kind: pa.DataType) -> bool:
    """What Python has the same values of, within as well."""
    if pa.types.is_list(kind):
        return is_plain(kind.value_type)
    if pa.types.is_struct(kind):
        return all(is_plain(field.type) for field in kind)
    tests = (pa.types.is_floating, pa.types.is_integer, pa.types.is_binary, pa.types.is_boolean)
    return kind != pa.uint64() and any(test(kind) for test in tests)


def as_text(us: int) -> str:
    """Delta has no times of day."""
    if us == 86_400 * 10**6:
        return "24:00:00"
    return (datetime.min + timedelta(microseconds=us)).time().isoformat(timespec="microseconds")
