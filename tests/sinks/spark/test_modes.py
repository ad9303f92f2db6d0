"""Each way of keeping a table of the lake does with a change what its page says."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.contract.sink_suite import ORDERS
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of

SECOND = 1_000_000


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def bench_of(path: Path, *, deletes: str = "hard", **table: Any) -> LakeBench:
    chosen = {"deletes": deletes, "tables": {"*": {"file_rows": 3, **table}}}
    return LakeBench(str(path / "lake"), chosen=chosen)


async def kept(bench: LakeBench, topic: ScriptedTopic) -> list[dict[str, Any]]:
    """All rows and columns after the topic was applied."""
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    return everything(bench)


def everything(bench: LakeBench, table: str = "public.orders") -> list[dict[str, Any]]:
    found = bench.table(table)
    assert found is not None
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def versions(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [
        (
            row["id"],
            row["note"],
            row["_headwater_valid_from"],
            row["_headwater_valid_to"],
            row["_headwater_is_current"],
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: each[:3])


def keys_in_files(path: Path, key: tuple[str, ...]) -> list[list[tuple[Any, ...]]]:
    """Of every file in its order, those that the table no longer has among them."""
    files = [parquet.read_table(each) for each in path.rglob("part-*.parquet")]
    return [list(zip(*(file[name].to_pylist() for name in key), strict=True)) for file in files]


async def test_soft_deletes_say_since_when_and_a_row_that_comes_back_forgets_it(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path, deletes="soft"), ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in (1, 2, 3)))
    await kept(bench, topic)
    topic.append(ORDERS, ("d", {"id": 1}), ("d", {"id": 2}), committed_us=5 * SECOND)
    await kept(bench, topic)
    topic.append(ORDERS, ("c", {"id": 2, "note": "again"}), ("d", {"id": 9}))

    found = await kept(bench, topic)

    rows = {row["id"]: (row["note"], row["_headwater_deleted_at"]) for row in found}
    assert rows == {1: ("a", moment(5)), 2: ("again", None), 3: ("a", None)}


async def test_deletes_can_be_ignored(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, deletes="ignore"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "a"}))
    await kept(bench, topic)
    topic.append(ORDERS, ("d", {"id": 1}), ("u", {"id": 2, "note": "b"}))
    topic.append(ORDERS, ("t", {}))

    found = await kept(bench, topic)

    assert {row["id"]: row["note"] for row in found} == {1: "a", 2: "b"}


async def test_append_keeps_every_change_with_its_place_in_the_log(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, mode="append"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("u", {"id": 1, "note": "b"}), partition=1)
    topic.append(ORDERS, ("d", {"id": 1}), partition=1, committed_us=7 * SECOND)
    topic.append(ORDERS, ("t", {}), partition=1)

    found = await kept(bench, topic)

    rows = sorted(found, key=lambda row: int(row["_headwater_offset"]))
    assert [
        (row["id"], row["note"], row["_headwater_op"], row["_headwater_offset"]) for row in rows
    ] == [(1, "a", "c", 0), (1, "b", "u", 1), (1, None, "d", 3), (None, None, "t", 5)]
    assert {(row["_headwater_topic"], row["_headwater_partition"]) for row in rows} == {
        (topic.name, 1)
    }
    assert rows[2]["_headwater_committed_at"] == moment(7)


async def test_scd2_keeps_a_row_per_version_within_and_across_slices(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, mode="scd2"), ScriptedTopic()
    topic.append(
        ORDERS,
        ("c", {"id": 1, "note": "a"}),
        ("u", {"id": 1, "note": "never seen"}),
        ("u", {"id": 1, "note": "b"}),
        ("c", {"id": 2, "note": "x"}),
        committed_us=[1 * SECOND, 2 * SECOND, 2 * SECOND, 3 * SECOND],
    )
    await kept(bench, topic)
    topic.append(
        ORDERS,
        ("u", {"id": 1, "note": "c"}),
        ("d", {"id": 2}),
        committed_us=[4 * SECOND, 5 * SECOND],
    )
    await kept(bench, topic)
    topic.append(ORDERS, ("c", {"id": 2, "note": "y"}), committed_us=6 * SECOND)
    topic.append(ORDERS, ("u", {"id": 2, "note": "z"}), committed_us=6 * SECOND)
    await kept(bench, topic)
    topic.append(ORDERS, ("u", {"id": 2, "note": "zz"}), committed_us=6 * SECOND)

    found = await kept(bench, topic)

    assert versions(found) == [
        (1, "a", moment(1), moment(2), False),
        (1, "b", moment(2), moment(4), False),
        (1, "c", moment(4), None, True),
        (2, "x", moment(3), moment(5), False),
        (2, "zz", moment(6), None, True),
    ]


async def test_a_truncate_ends_the_current_versions(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, mode="scd2"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), committed_us=1 * SECOND)
    topic.append(ORDERS, ("t", {}), committed_us=2 * SECOND)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}), committed_us=3 * SECOND)

    found = await kept(bench, topic)

    assert versions(found) == [
        (1, "a", moment(1), moment(2), False),
        (2, "b", moment(3), None, True),
    ]


async def test_a_truncate_marks_rows_that_are_kept_softly(tmp_path: Path) -> None:
    bench, topic = bench_of(tmp_path, deletes="soft"), ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "a"}))
    await kept(bench, topic)
    topic.append(ORDERS, ("t", {}), committed_us=2 * SECOND)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))

    found = await kept(bench, topic)

    rows = {row["id"]: (row["note"], row["_headwater_deleted_at"]) for row in found}
    assert rows == {1: ("a", moment(2)), 2: ("b", None)}


async def test_a_truncate_of_one_of_several_merged_tables_takes_only_its_rows(
    tmp_path: Path,
) -> None:
    """A route that adds the tenant to the key fills it in the truncate's row as well."""
    merged = schema_of("crm.orders", key=("tenant", "id"), tenant=pa.string(), id=pa.int64())
    topics = [ScriptedTopic(f"shop.tenant_{name}.orders", name) for name in "ab"]
    bench = bench_of(tmp_path)
    sink = bench.sink()
    await sink.committed_offsets([topic.name for topic in topics])
    for topic in topics:
        topic.append(merged, *(("c", {"tenant": topic.topic_id, "id": n}) for n in (1, 2)))
        await sink.apply(topic.slice())
    topics[0].append(merged, ("t", {"tenant": "a"}))

    await sink.apply(topics[0].slice())

    rows = everything(bench, "crm.orders")
    assert {(row["tenant"], row["id"]) for row in rows} == {("b", 1), ("b", 2)}


@pytest.mark.parametrize("key", [("id",), ("name",), ("name", "id")])
@pytest.mark.parametrize("mode", ["mirror", "soft_delete"])
async def test_every_file_holds_its_rows_in_the_order_of_the_key(
    mode: str, key: tuple[str, ...], tmp_path: Path
) -> None:
    """So that who looks for a key can pass over most of a file."""
    schema = schema_of("public.orders", key=key, id=pa.int64(), name=pa.string())
    bench, topic = bench_of(tmp_path, mode=mode, file_rows=1_000), ScriptedTopic()
    chance, sink = Random(7), bench.sink()
    await sink.committed_offsets([topic.name])

    for _ in range(3):
        numbers = chance.sample(range(-50, 50), 40)
        topic.append(schema, *(("u", {"id": at, "name": f"é{at % 7}{at}"}) for at in numbers))
        await sink.apply(topic.slice())

    found = keys_in_files(tmp_path, key)
    assert len(found) == 3
    assert found == [sorted(each) for each in found]
