"""Splits Debezium's JSON events: operation, time, and the rows as text."""

from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.foundation.preload import unfreeze_at_exit

EVENT = '{"before":"JSON","after":"JSON","op":"JSON","source":{"ts_us":"BIGINT","ts_ms":"BIGINT"}}'
BLOCKS = '{"source":"JSON","transaction":"JSON"}'
CUT = (
    "row.before AS before, row.after AS after, row.op AS op,"
    " coalesce(row.source.ts_us, row.source.ts_ms * 1000) AS committed_us"
)
"""Fields outside of the rows are not checked strictly: connectors and versions write different
ones."""


class EventColumns(NamedTuple):
    """The fields of events as columns; `op` is a JSON string with its quotes."""

    before: pa.StringArray
    after: pa.StringArray
    op: pa.StringArray
    committed_us: pa.Int64Array


def cut_events(texts: pa.StringArray, *, has_schemas: bool) -> EventColumns:
    shape, place = (f'{{"payload":{EVENT}}}', ".payload") if has_schemas else (EVENT, "")
    table = _read(texts, f"from_json(value, '{shape}'){place} AS row", CUT)
    return EventColumns(*(table.column(name).combine_chunks() for name in EventColumns._fields))


def cut_blocks(
    texts: pa.StringArray, *, has_schemas: bool
) -> tuple[pa.StringArray, pa.StringArray]:
    """Returns the `source` and `transaction` blocks of events; null if there is none."""
    shape, place = (f'{{"payload":{BLOCKS}}}', ".payload") if has_schemas else (BLOCKS, "")
    columns = "nullif(row.source, 'null') AS source, nullif(row.transaction, 'null') AS transaction"
    table = _read(texts, f"from_json(value, '{shape}'){place} AS row", columns)
    source, transaction = table.column("source"), table.column("transaction")
    return source.combine_chunks(), transaction.combine_chunks()


def payloads(texts: pa.StringArray) -> pa.StringArray:
    """Returns the payload without Connect's schema."""
    found = _read(texts, 'from_json(value, \'{"payload":"JSON"}\').payload AS row', "row")
    return found.column("row").combine_chunks()


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """Returns the values as text; raises `RowsRejected` for a value that is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        reasons = {
            place: "the value is no UTF-8"
            for place, value in enumerate(values.to_pylist())
            if value is not None and not _is_text(value)
        }
        raise RowsRejected("records are not JSON", reasons=reasons) from None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(texts: pa.StringArray, expression: str, columns: str) -> pa.Table:
    cursor = _connection().cursor()
    values = cursor.from_arrow(pa.table({"value": texts}))
    try:
        return values.project(expression).project(columns).to_arrow_table()
    except Exception as error:
        return _without_json(texts, error)


def _without_json(texts: pa.StringArray, error: Exception) -> Any:
    values = _connection().cursor().from_arrow(pa.table({"value": texts}))
    is_json = values.project("json_valid(value) AS found").to_arrow_table().column("found")
    bad = pc.indices_nonzero(pc.invert(is_json)).to_pylist()
    if not bad:
        raise error
    reasons = dict.fromkeys(bad, "the value is not JSON")
    # No `from`: DuckDB's message quotes the value.
    raise RowsRejected("records are not JSON", reasons=reasons) from None


@cache
def _connection() -> Any:
    """Returns the one connection of the process; every use takes its own cursor."""
    import duckdb  # imported late: slow to load

    unfreeze_at_exit()
    return duckdb.connect(":memory:", config={"threads": 1})
