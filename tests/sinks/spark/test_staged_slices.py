"""A slice that is too large for memory is staged piece by piece, and committed as one."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import RecordsRejected, SinkUnavailable
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.spark import file_rewrite, work_split
from headwater.sinks.spark.lake_table_writer import LakeTableWriter
from headwater.sinks.spark.maintenance import maintain
from headwater.sinks.spark.sink_state import SinkState
from headwater.sinks.spark.work_split import rows_not_worth_spark
from tests.contract.sink_suite import ORDERS, by_id
from tests.sinks.spark.orders import applied, begun, bench_of, many, state_of
from tests.sinks.spark.scripted_spark import ScriptedReader
from tests.slices import ScriptedTopic, schema_of, together

WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), tip=pa.int64())


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pieces of ten rows are too much, and ten rows worth a file."""
    monkeypatch.setattr(work_split, "HELD_BYTES_MAX", 800)
    monkeypatch.setattr(file_rewrite, "FILE_BYTES_MIN", 300)


def files_under(path: Path) -> list[str]:
    """Whether a version names them or not."""
    return sorted(each.name for each in path.rglob("part-*.parquet"))


def appended(*firsts: int, count: int = 10) -> ScriptedTopic:
    topic = ScriptedTopic()
    for first in firsts:
        topic.append(ORDERS, *many(first, count))
    return topic


async def test_a_slice_larger_than_memory_is_one_commit_without_leftovers(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), appended(*range(0, 100, 10))
    topic.append(ORDERS, ("u", {"id": 5, "note": "b"}), ("d", {"id": 95}))

    await applied(bench, topic)

    state = state_of(bench)
    named = sorted(each.path for each in state.files)
    found = {row["id"]: row["note"] for row in await bench.rows("public.orders")}
    assert state.version == 0 and len(named) > 1
    assert found == {at: "b" if at == 5 else "a" for at in range(100) if at != 95}
    assert files_under(tmp_path) == named


async def test_rows_above_all_keys_are_written_beside_their_files(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    await applied(bench, topic := appended(0))
    [before] = state_of(bench).files
    topic.append(ORDERS, *many(10, 10))
    topic.append(ORDERS, *many(20, 3))

    await applied(bench, topic)

    files = sorted(state_of(bench).files, key=lambda each: int(each.low or 0))
    assert files[0] == before
    assert [(each.low, each.high) for each in files] == [(0, 9), (10, 22)]


async def test_the_largest_key_that_there_is_has_nothing_above_it(tmp_path: Path) -> None:
    bench, topic, last = bench_of(tmp_path), ScriptedTopic(), (1 << 63) - 1
    topic.append(ORDERS, ("c", {"id": last, "note": "a"}))
    await applied(bench, topic)
    topic.append(ORDERS, *many(0, 10), ("u", {"id": last, "note": "b"}))

    await applied(bench, topic)

    rows = by_id(await bench.rows("public.orders"))
    assert len(rows) == 11 and rows[-1] == {"id": last, "note": "b"}


async def test_text_keys_above_a_file_are_told_from_its_last_one(tmp_path: Path) -> None:
    schema = schema_of("public.orders", id=pa.string(), note=pa.string())
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(schema, ("c", {"id": "k", "note": "a"}))
    await applied(bench, topic)
    above = [("c", {"id": f"k{at}", "note": "a"}) for at in range(20)]
    topic.append(schema, ("u", {"id": "k", "note": "b"}), *above)

    await applied(bench, topic)

    rows = {row["id"]: row["note"] for row in await bench.rows("public.orders")}
    files = sorted(state_of(bench).files, key=lambda each: str(each.low))
    assert rows == {"k": "b", **{f"k{at}": "a" for at in range(20)}}
    assert [(each.low, each.high) for each in files] == [("k", "k"), ("k0", "k9")]


async def test_a_table_gets_new_columns_between_two_stagings(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), appended(0, 10, 20)
    for first in (30, 40, 50):
        ids = range(first, first + 10)
        topic.append(WIDER, *(("c", {"id": at, "note": "a", "tip": at}) for at in ids))

    await applied(bench, topic)

    rows = by_id(await bench.rows("public.orders"))
    assert [row["tip"] for row in rows] == [None] * 30 + list(range(30, 60))


async def test_a_truncate_empties_what_was_staged_before_it(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), appended(0, 10, 20)
    topic.append(ORDERS, ("t", {}))
    topic.append(ORDERS, *many(200, 5))

    await applied(bench, topic)

    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [*range(200, 205)]
    assert files_under(tmp_path) == sorted(each.path for each in state_of(bench).files)


async def test_a_table_that_fails_while_it_is_staged_stops_no_other(tmp_path: Path) -> None:
    bench, good = bench_of(tmp_path), appended(0, 10, 20)
    schema, poison = bench.poison()
    bad = ScriptedTopic("shop.public.moments")
    for first in range(0, 60, 10):
        bad.append(schema, *(("c", {"id": first + at, "at": at}) for at in range(10)))
    bad.append(schema, ("c", poison), *(("c", {"id": 100 + at, "at": at}) for at in range(40)))

    with pytest.raises(RecordsRejected) as refused:
        await applied(bench, bad, good)

    assert refused.value.facts["table"] == "public.moments"
    assert len(await bench.rows("public.orders")) == 30
    assert await bench.rows("public.moments") == []


async def test_a_commit_that_comes_before_ours_has_the_slice_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(tmp_path, maintenance={"small_files": 2}, tables={"*": {"file_rows": 100}})
    sink = await begun(bench, topic := appended(0))
    topic.append(ORDERS, *many(50, 20))
    await sink.apply(topic.slice())
    for first in (1000, 1010, 1020):
        topic.append(ORDERS, *many(first, 10))
    part, prepare = topic.slice(), LakeTableWriter.prepare

    def overtaken(self: LakeTableWriter, *given: object, **named: object) -> object:
        ready = prepare(self, *given, **named)  # type: ignore[arg-type]
        other = bench.sink()
        said = maintain(other._lake.table(self.table), other._settings, now_ms=0)
        assert "small files" in said[0]
        return ready

    monkeypatch.setattr(LakeTableWriter, "prepare", overtaken)
    with pytest.raises(SinkUnavailable, match="other writers keep committing"):
        await sink.apply(part)
    monkeypatch.setattr(LakeTableWriter, "prepare", prepare)
    await sink.apply(part)

    ids = [row["id"] for row in by_id(await bench.rows("public.orders"))]
    assert ids == [*range(10), *range(50, 70), *range(1000, 1030)]


def test_spark_is_worth_its_start_only_where_it_has_more_cores_than_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr(work_split, "is_running", lambda: False)
    assert rows_not_worth_spark("spark://there:7077") == 0
    assert rows_not_worth_spark("local") == rows_not_worth_spark("local[2]") == float("inf")
    assert 1_000_000 < rows_not_worth_spark("local[*]") < rows_not_worth_spark("local[4]")

    monkeypatch.setattr(work_split, "is_running", lambda: True)
    assert rows_not_worth_spark("local[*]") == rows_not_worth_spark("local[2]") == 0


async def test_a_table_whose_keys_come_in_no_order_is_spark_s_from_the_next_large_slice_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_split, "ROWS_AGAIN_MAX", 25)
    monkeypatch.setattr(work_split, "SMALL_ROWS", 20)
    monkeypatch.setattr(work_split, "is_running", lambda: False)
    bench, topic, ordered = bench_of(tmp_path), ScriptedTopic(), ScriptedTopic("shop.public.items")
    items = schema_of("public.items", id=pa.int64(), note=pa.string())
    for first in range(10):
        topic.append(ORDERS, *(("c", {"id": at * 10 + first, "note": "a"}) for at in range(10)))
        ordered.append(items, *many(first * 10, 10))
    sink = bench.sink()
    await sink.committed_offsets([topic.name, ordered.name])
    await sink.apply(together(topic.slice(), ordered.slice()))

    topic.append(ORDERS, *many(0, 30, note="b"))
    ordered.append(items, *many(0, 30, note="b"))
    part = together(topic.slice(), ordered.slice())
    feeds = {topic.name: (TableId("public", "orders"), ""), ordered.name: (items.table, "")}
    asked = replace(part, split_reader=ScriptedReader([each async for each in part.changes()]))

    large = await sink._work_split._large(asked, SinkState(feeds=feeds))

    assert large == {TableId("public", "orders"): frozenset({topic.name})}
    assert len(await bench.rows("public.orders")) == 100
