"""The type of a column that the target has is known, so that another one that comes is noticed."""

from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headwater.core_log.foundation.errors import RebuildNeeded, TableFailed
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic

TYPES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(12, 2),
    "text": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "moment": pa.timestamp("us", tz="UTC"),
}


def form(kind: Any) -> TableSchema:
    key = Column("id", pa.int64(), is_nullable=False)
    return TableSchema(TableId("public", "orders"), (key, Column("a", kind)), ("id",))


@pytest.mark.parametrize("name", TYPES)
async def test_a_column_has_the_type_for_which_it_was_made(bench: SqlBench, name: str) -> None:
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(TYPES[name]), ("c", {"id": 1}))
    await sink.apply(topic.slice())
    assert sink._target is not None
    dialect = sink._target.dialect
    await sink.close()

    columns = sa.inspect(bench.engine).get_columns("orders")
    [kind] = [each["type"] for each in columns if each["name"] == "a"]
    fit = dialect.fit(form(TYPES[name]).column("a"), is_key=False)
    assert dialect.arrow_type(kind) == fit.holds


@pytest.mark.parametrize("name", ["text", "int32", "timestamp"])
async def test_another_type_than_bytes_does_not_enter_a_column_of_bytes(
    bench: SqlBench, name: str
) -> None:
    topic, sink = ScriptedTopic(), bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(form(pa.binary()), ("c", {"id": 1, "a": b"x"}))
    await sink.apply(topic.slice())
    topic.append(form(TYPES[name]), ("c", {"id": 2}))

    with pytest.raises((RebuildNeeded, TableFailed)):
        await sink.apply(topic.slice())
    await sink.close()
