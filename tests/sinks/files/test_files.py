"""What the files sink puts where: rows, names, partitions, sizes."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.store import SINK_ERRORS, names_below
from headwater.sinks.files import formats
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.object_names import (
    NULL,
    hive_name,
    hive_partition_directory,
    hive_table_directory,
)
from tests.contract.sink_suite import ORDERS
from tests.sinks.files.targets import FilesBench
from tests.slices import COMMITTED_US, ScriptedTopic, schema_of

DAYS = schema_of("public.days", id=pa.int64(), day=pa.date32(), city=pa.string())


async def applied(bench: FilesBench, schema: Any, *changes: Any) -> list[Path]:
    """The files of one slice."""
    topic = ScriptedTopic(f"shop.{schema.table}")
    topic.append(schema, *changes)
    await bench.sink().apply(topic.slice())
    return [Path(name) for name in formats.files(bench.path, str(schema.table))]


async def test_every_change_is_a_row_that_says_what_and_when_it_was(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path))
    topic = ScriptedTopic()
    topic.append(ORDERS, ("r", {"id": 1, "note": "a"}), ("u", {"id": 1, "note": "b"}))
    topic.append(ORDERS, ("d", {"id": 1}))
    topic.append(ORDERS, ("t", {}))

    await bench.sink().apply(topic.slice())

    found = formats.table(bench.path, "public.orders")
    assert found.column("_headwater_op").to_pylist() == ["r", "u", "d", "t"]
    assert found.column("_headwater_offset").to_pylist() == [0, 1, 3, 5]
    assert found.column("id").to_pylist() == [1, 1, 1, None]
    at = datetime.fromtimestamp(COMMITTED_US / 1_000_000, UTC)
    assert found.column("_headwater_committed_at").to_pylist() == [at] * 4


async def test_partitions_are_directories_that_every_reader_knows(tmp_path: Path) -> None:
    bench = FilesBench(
        str(tmp_path), chosen={"tables": {"*.days": {"partition_by": ["city", "day"]}}}
    )
    rows = [
        {"id": 1, "day": date(2026, 1, 31), "city": "Köln"},
        {"id": 2, "day": None, "city": "../../etc"},
        {"id": 3, "day": date(2026, 1, 31), "city": "Köln"},
        {"id": 4, "day": date(2026, 1, 31), "city": None},
    ]

    files = await applied(bench, DAYS, *(("c", row) for row in rows))

    below = sorted(file.parent.relative_to(tmp_path).as_posix() for file in files)
    assert below == [
        "public.days/city=%2E.%2F..%2Fetc/day=__HIVE_DEFAULT_PARTITION__",
        "public.days/city=K%C3%B6ln/day=2026-01-31",
        "public.days/city=__HIVE_DEFAULT_PARTITION__/day=2026-01-31",
    ]
    found = sorted(await bench.rows("public.days"), key=lambda row: int(row["id"]))
    assert found == rows


async def test_files_end_where_they_are_full(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path), chosen={"roll": {"rows": 40}})

    files = await applied(bench, ORDERS, *(("c", {"id": n, "note": None}) for n in range(100)))

    assert [parquet.read_metadata(file).num_rows for file in files] == [40, 40, 20]
    assert [row["id"] for row in await bench.rows("public.orders")] == list(range(100))


async def test_few_files_are_open_at_once_and_no_row_gets_lost(tmp_path: Path) -> None:
    chosen = {"tables": {"*": {"partition_by": "note"}}, "open_files_max": 2}
    bench = FilesBench(str(tmp_path), chosen=chosen)
    topic = ScriptedTopic()
    for number in range(30):
        topic.append(ORDERS, ("c", {"id": number, "note": str(number % 5)}))

    await bench.sink().apply(topic.slice())

    assert sorted(row["id"] for row in await bench.rows("public.orders")) == list(range(30))


async def test_json_lines_say_decimals_and_times_as_people_do(tmp_path: Path) -> None:
    schema = schema_of(
        "t", id=pa.int64(), total=pa.decimal128(10, 2), at=pa.timestamp("us", "UTC"), ok=pa.bool_()
    )
    bench = FilesBench(str(tmp_path), chosen={"format": "jsonl", "metadata_columns": False})
    at = datetime(2026, 1, 31, 10, tzinfo=UTC)

    (file,) = await applied(
        bench,
        schema,
        ("c", {"id": 1, "total": Decimal("1.50"), "at": at, "ok": True}),
        ("d", {"id": 2}),
    )

    first, second = map(orjson.loads, file.read_bytes().splitlines())
    assert first == {"id": 1, "total": "1.50", "at": "2026-01-31T10:00:00.000000Z", "ok": True}
    assert second == {"id": 2, "total": None, "at": None, "ok": None}


async def test_a_column_called_like_ours_is_refused(tmp_path: Path) -> None:
    schema = schema_of("t", id=pa.int64(), _headwater_op=pa.string())

    with pytest.raises(SinkRejected, match="has the name of one that this sink adds"):
        await applied(FilesBench(str(tmp_path)), schema, ("c", {"id": 1, "_headwater_op": "x"}))


async def test_a_partition_column_that_is_missing_is_refused(tmp_path: Path) -> None:
    bench = FilesBench(str(tmp_path), chosen={"tables": {"*": {"partition_by": "nope"}}})

    with pytest.raises(SinkRejected, match="lacks columns") as caught:
        await applied(bench, ORDERS, ("c", {"id": 1, "note": "secret"}))

    assert "secret" not in str(caught.value)


async def test_nothing_of_a_slice_is_left_aside(tmp_path: Path) -> None:
    await applied(FilesBench(str(tmp_path)), ORDERS, ("c", {"id": 1, "note": "a"}))

    left = {
        tuple(name.split("/")[:2]) for name in names_below(DirectoryStore(tmp_path, SINK_ERRORS))
    }
    assert {parts[0] for parts in left} == {"public.orders", "_headwater"}
    assert {parts[1] for parts in left if parts[0] == "_headwater"} == {"sinks", "tables"}


@pytest.mark.property
@given(st.text(st.characters(), max_size=300))
def test_no_name_leads_out_of_its_directory(text: str) -> None:
    name = hive_name(text)

    assert len(name) <= 120
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.~%")
    assert not name.startswith((".", "_"))
    assert hive_partition_directory("c", text) != hive_partition_directory("c", None)
    assert NULL not in hive_partition_directory("c", text)


@pytest.mark.property
@given(st.lists(st.tuples(st.text(max_size=8), st.text(min_size=1, max_size=8)), min_size=2))
def test_no_two_tables_share_a_directory(names: list[tuple[str, str]]) -> None:
    tables = {TableId(*name) for name in names}

    assert len({hive_table_directory(table) for table in tables}) == len(tables)


def test_a_compression_that_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(ValueError, match="gzip or zstd"):
        FilesSinkSettings(path="x", format="jsonl", compression="snappy")
