"""Parquet files have dictionaries for the columns whose values come again, and for no others."""

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.files.formats import ParquetFile

SCHEMA = TableSchema(
    TableId("", "orders"), (Column("id", pa.int64()), Column("city", pa.string())), ("id",)
)


def written(path: Path, *batches: pa.RecordBatch) -> pa.Table:
    file = ParquetFile(path, SCHEMA, compression="zstd")
    for batch in batches:
        file.write(batch)
    file.close()
    return parquet.read_table(path)


def test_only_what_repeats_gets_a_dictionary(tmp_path: Path) -> None:
    rows = [{"id": number, "city": f"city {number % 5}"} for number in range(1_000)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA.arrow)

    found = written(tmp_path / "orders.parquet", batch, batch)

    group = parquet.read_metadata(tmp_path / "orders.parquet").row_group(0)
    columns = [group.column(place) for place in range(2)]
    assert [column.has_dictionary_page for column in columns] == [False, True]
    assert found.to_pylist() == rows * 2


def test_a_file_without_rows_is_a_whole_file(tmp_path: Path) -> None:
    found = written(tmp_path / "orders.parquet")

    assert found.schema.equals(SCHEMA.arrow) and not found.num_rows
