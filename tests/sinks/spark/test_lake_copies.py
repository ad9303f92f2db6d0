"""A table of the lake is made anew beside itself, and put together, while its sink goes on."""

from pathlib import Path

import pytest
from deltalake import DeltaTable

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import Fenced, SinkRejected
from headwater.sinks.sink import DELETED_AT, CarryOver, RebuildRecipe
from tests.contract.sink_suite import ORDERS, by_id, offsets
from tests.sinks.deleted_rows import ALL, SECOND, swapped
from tests.sinks.spark.orders import TABLE, applied, bench_of, many, state_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_a_copy_is_filled_beside_and_takes_the_place_in_one_commit(
    kind: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    before = state_of(bench)
    sink = bench.sink()
    again = LakeBench(bench.path, chosen={"deletes": "soft", "format": kind}).sink()
    shadow = await again.shadow(RebuildRecipe(TABLE))
    assert await shadow.committed_offsets([topic.name]) == {}
    await shadow.apply(topic.slice(start={0: 0}))
    topic.append(ORDERS, ("d", {"id": 2}))
    part = topic.slice()
    await sink.committed_offsets([topic.name])
    await sink.apply(part)
    seen_meanwhile = await bench.rows("public.orders")
    await shadow.apply(part)

    kept = await again.swap(TABLE)

    after = state_of(bench)
    rows = bench.table("public.orders")
    assert rows is not None
    assert len(seen_meanwhile) == 3 and rows.num_rows == 4
    assert not has_log(Path(bench.address("public.orders"), "shadow-g2"))
    assert after.version == before.version + 2 and str(before.version + 1) in kept
    assert (after.generation, after.mode, after.id) == (2, "soft_delete", before.id)
    assert await offsets(again, topic.name) == {f"{topic.name}/0": 7}
    with pytest.raises(Fenced):
        await again.apply(topic.slice(start={0: 0}))
    topic.append(ORDERS, ("c", {"id": 9, "note": "on"}))
    await again.apply(topic.slice())
    assert len(await bench.rows("public.orders")) == 5


async def test_a_rebuild_goes_on_with_the_copy_that_is_there(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    first = await bench.sink().shadow(RebuildRecipe(TABLE))
    await first.committed_offsets([topic.name])
    await first.apply(topic.slice(start={0: 0}))

    second = await bench.sink().shadow(RebuildRecipe(TABLE))

    assert await offsets(second, topic.name) == {f"{topic.name}/0": 5}


@pytest.mark.slow
async def test_a_table_that_is_put_back_to_before_its_swap_goes_on_from_there(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    before = state_of(bench)
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TABLE)
    topic.append(ORDERS, *many(4, 2))
    await applied(bench, topic)
    topic.append(ORDERS, ("c", {"id": 9, "note": "set aside"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice(without=[8]))  # so that only the state log says how far it is

    DeltaTable(bench.address("public.orders")).restore(before.version)

    assert await offsets(bench.sink(), topic.name) == {f"{topic.name}/0": 5}
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice(start={0: 5}, without=[8]))
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 1, 2, 3, 4, 5]


async def test_a_table_that_is_put_back_within_one_generation_waits_for_its_rebuild(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    for first in (0, 4):
        topic.append(ORDERS, *many(first, 4))
        await applied(bench, topic)
    DeltaTable(bench.address("public.orders")).restore(0)
    topic.append(ORDERS, *many(8, 1))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    with pytest.raises(SinkRejected, match="a version without offsets") as refused:
        await sink.apply(topic.slice())
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TABLE)
    topic.append(ORDERS, *many(9, 1))
    await applied(bench, topic)

    assert "headwater rebuild shop/public.orders --swap" in refused.value.hint
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == list(range(10))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(("before", "after"), [("", "note"), ("note", ""), ("note", "id")])
async def test_a_table_is_divided_otherwise_by_a_swap(
    kind: str, before: str, after: str, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    bench.chosen["tables"] = {"*": {"partition_by": before or []}}
    topic.append(ORDERS, *many(0, 3), ("c", {"id": 3, "note": "b"}))
    await applied(bench, topic)
    bench.chosen["tables"] = {"*": {"partition_by": after or []}}
    sink = bench.sink()
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))

    await sink.swap(TABLE)
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}), ("d", {"id": 2}))
    await applied(bench, topic)

    rows = by_id(await bench.rows("public.orders"))
    assert [(row["id"], row["note"]) for row in rows] == [(0, "a"), (1, "b"), (3, "b")]
    assert state_of(bench).partition_by == ((after,) if after else ())
    assert len(await bench.sink().plan([ORDERS])) == 1, "it waits for no rebuild any more"


@pytest.mark.slow
async def test_a_commit_of_an_iceberg_table_reads_no_more_the_more_came_before(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path, format="iceberg"), ScriptedTopic()
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    for number in range(6):
        topic.append(ORDERS, ("u", {"id": 1, "note": str(number)}))
        await sink.apply(topic.slice())

    table, _ = state_of(bench).native

    # What the last commit added, and what it removed.
    assert len(table.current_snapshot().manifests(table.io)) == 2
    assert [row["note"] for row in await bench.rows("public.orders")] == ["5"]


async def test_a_lake_at_another_place_does_not_take_a_table_of_the_same_catalog_for_its_own(
    tmp_path: Path,
) -> None:
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db"}
    bench, topic = bench_of(tmp_path, format="iceberg", catalog=catalog), ScriptedTopic()
    topic.append(ORDERS, *many(0, 3))
    await applied(bench, topic)

    elsewhere = LakeBench(str(tmp_path / "elsewhere"), chosen=bench.chosen)

    with pytest.raises(SinkRejected, match="at another path"):
        await elsewhere.sink().apply(topic.slice(start={0: 0}))


async def test_small_files_are_put_together_while_the_sink_goes_on(tmp_path: Path) -> None:
    chosen = {"tables": {"*": {"mode": "append"}}, "maintenance": {"small_files": 3}}
    bench, topic = bench_of(tmp_path, **chosen), ScriptedTopic()
    bench.clock = SystemClock()
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    for number in range(4):
        topic.append(ORDERS, ("c", {"id": number, "note": "a"}))
        await sink.apply(topic.slice())

    said = await bench.sink().maintain()
    topic.append(ORDERS, ("c", {"id": 4, "note": "a"}))
    await sink.apply(topic.slice())

    assert said == ["public.orders: 4 small files were compacted into 1"]
    assert len(state_of(bench).files) == 2
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 1, 2, 3, 4]


def has_log(directory: Path) -> bool:
    """Whether it is a Delta table of its own."""
    return (directory / "_delta_log").exists()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
async def test_deleted_rows_that_the_log_no_longer_tells_of_go_over_to_the_copy(
    kind: str, tmp_path: Path
) -> None:
    bench = bench_of(tmp_path, format=kind, deletes="soft", tables={"*": {"file_rows": 2}})

    await swapped(bench.sink(), ALL)

    assert ends(bench) == {
        1: ("last", 5),
        2: ("first 2", None),
        3: ("first 3", 9),
        4: ("first 4", 7),
    }


async def test_rows_that_were_deleted_later_do_not_go_over_to_a_copy_of_the_past(
    tmp_path: Path,
) -> None:
    bench = bench_of(tmp_path, deletes="soft")

    await swapped(bench.sink(), CarryOver(("id",), until_us=6 * SECOND))

    assert ends(bench) == {1: ("last", 5), 2: ("first 2", None), 4: ("first 4", 7)}


async def test_rows_whose_deletes_are_ignored_go_over_to_the_copy(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, deletes="ignore")

    await swapped(bench.sink(), ALL)

    found = {row["id"]: row["note"] for row in await bench.rows("public.orders")}
    assert found == {1: "last", 2: "first 2", 3: "first 3", 4: "first 4"}


def ends(bench: LakeBench) -> dict[int, tuple[str, int | None]]:
    """By key the note, and the second of the delete."""
    found = bench.table("public.orders")
    assert found is not None
    return {
        row["id"]: (row["note"], row[DELETED_AT] and int(row[DELETED_AT].timestamp()))
        for row in found.to_pylist()
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("is_whole", [False, True])
async def test_a_copy_goes_with_its_table_when_that_is_dropped(
    kind: str, is_whole: bool, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, format=kind), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    recipe = RebuildRecipe(TABLE)
    shadow = await bench.sink().shadow(recipe)
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))

    sink = bench.sink()
    await (sink.drop() if is_whole else sink.drop_table(TABLE, [topic.name]))

    sink = bench.sink()
    assert await sink.committed_offsets([topic.name]) == {}
    await sink.apply(topic.slice(start={0: 0}))
    shadow = await sink.shadow(recipe)
    assert await shadow.committed_offsets([topic.name]) == {}
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TABLE)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 1, 2, 3]
