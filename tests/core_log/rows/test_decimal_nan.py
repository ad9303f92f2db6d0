"""A decimal that is not a number is written with its word, and never read as a number."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.schema_text import decimals_as_text, declare_nan_columns
from headwater.core_log.rows.settings import WireSettings
from tests.core_log.rows.avro.registry_fake import RegistryFake, running_registry
from tests.core_log.rows.tables import NOW_US, changes, table

COLUMNS = (
    Column("id", pa.int64(), is_nullable=False),
    Column("price", pa.decimal128(10, 2)),
    Column("few", pa.decimal128(7, 0), parameters={"scale": "0", "precision": "5"}),
    Column("many", pa.list_(pa.decimal256(60, 1)), is_nullable=False),
)
SCHEMA = table(*COLUMNS, key=("id",))
FORMATS = ("debezium-json", "flat-json", "debezium-avro")


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryFake]:
    with running_registry() as running:
        yield running


def told(schema: TableSchema, rows: Sequence[dict[str, Any]]) -> TableChanges:
    return changes(schema, pa.RecordBatch.from_pylist(list(rows), schema=schema.arrow).columns)


def with_text(schema: TableSchema) -> TableSchema:
    columns = (
        column if column.name == "id" else decimals_as_text(column) for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def row(number: int, price: Any, few: Any, *many: Any) -> dict[str, Any]:
    return {"id": number, "price": price, "few": few, "many": list(many)}


def test_the_log_knows_the_columns_by_the_types_they_are_declared_with() -> None:
    assert declare_nan_columns(with_text(SCHEMA)) == SCHEMA
    assert declare_nan_columns(SCHEMA) is SCHEMA


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mode", ["string", "double"])
def test_numbers_are_written_alike_as_text(mode: str, form: str, registry: RegistryFake) -> None:
    wire = WireSettings.model_validate(
        {"decimal": mode, "value": form, "registry": registry.address}
    )
    numbers = row(1, Decimal("-1.50"), Decimal(12300), Decimal("0.1"), None)
    texts = row(1, "-1.50", "12300", "0.1", None)

    plain = codec_for(wire, topic="t").encode(told(SCHEMA, [numbers]), now_us=NOW_US)
    text = codec_for(wire, topic="t").encode(told(with_text(SCHEMA), [texts]), now_us=NOW_US)

    assert (text.keys, text.values) == (plain.keys, plain.values)


@pytest.mark.parametrize(("mode", "word"), [("string", b'"NAN"'), ("double", b'"NaN"')])
def test_only_the_record_with_the_word_is_refused_by_readers(mode: str, word: bytes) -> None:
    codec = codec_for(WireSettings.model_validate({"decimal": mode}), topic="t")
    texts = [row(1, "1.50", "1"), row(2, "NaN", "2"), row(3, None, "3", "4.5", "NaN")]

    written = codec.encode(told(with_text(SCHEMA), texts), now_us=NOW_US)

    assert [word in value for value in written.values.to_pylist()] == [False, True, True]
    with pytest.raises(RowsRejected) as caught:
        codec.decode(written.keys, written.values, SCHEMA)
    assert list(caught.value.reasons) == [1, 2]
    [first] = codec.decode(written.keys[:1], written.values[:1], SCHEMA).rows.to_pylist()
    assert first == row(1, Decimal("1.50"), Decimal(1))
