"""Each way of keeping a table does with a change what its page says."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tests.contract.sink_suite import ORDERS
from tests.sinks.sql.databases import SqlBench
from tests.slices import ScriptedTopic, schema_of

SECOND = 1_000_000


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def versions(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = [
        (
            row["id"],
            row["note"],
            row["_headwater_valid_from"],
            row["_headwater_valid_to"],
            bool(row["_headwater_is_current"]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda each: each[:3])


async def test_soft_deletes_say_since_when_and_a_row_that_comes_back_forgets_it(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in (1, 2, 3)))
    sink = bench.sink(deletes="soft")
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("d", {"id": 1}), ("d", {"id": 2}), committed_us=5 * SECOND)
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 2, "note": "again"}), ("d", {"id": 9}))
    await sink.apply(topic.slice())
    await sink.close()

    rows = {row["id"]: (row["note"], row["_headwater_deleted_at"]) for row in all_orders(bench)}
    assert rows == {1: ("a", moment(5)), 2: ("again", None), 3: ("a", None)}


async def test_each_of_many_rows_is_there_with_its_newest_values(
    bench: SqlBench,
) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in range(9_001)))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, *(("u", {"id": number, "note": "b"}) for number in range(0, 9_001, 7)))
    topic.append(ORDERS, *(("c", {"id": number, "note": None}) for number in range(9_001, 9_100)))
    topic.append(ORDERS, *(("d", {"id": number}) for number in range(5, 9_001, 70)))
    await sink.apply(topic.slice())
    await sink.close()

    expected: dict[int, str | None] = {
        number: "b" if number % 7 == 0 else "a" for number in range(9_001)
    }
    expected |= dict.fromkeys(range(9_001, 9_100))
    gone = set(range(5, 9_001, 70))
    assert {row["id"]: row["note"] for row in all_orders(bench)} == {
        number: note for number, note in expected.items() if number not in gone
    }


async def test_rows_that_seem_new_and_are_there_already_are_written_over(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in range(2_000)))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    for note in ("b", "c"):
        topic.append(ORDERS, *(("c", {"id": each, "note": note}) for each in range(1_990, 3_500)))
        await sink.apply(topic.slice())
    await sink.close()

    assert {row["id"]: row["note"] for row in all_orders(bench)} == {
        number: "a" if number < 1_990 else "c" for number in range(3_500)
    }


async def test_deletes_can_be_ignored(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "a"}))
    sink = bench.sink(deletes="ignore")
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("d", {"id": 1}), ("u", {"id": 2, "note": "b"}))
    await sink.apply(topic.slice())
    await sink.close()

    assert {row["id"]: row["note"] for row in all_orders(bench)} == {1: "a", 2: "b"}


async def test_append_keeps_every_change_with_its_place_in_the_log(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("u", {"id": 1, "note": "b"}), partition=1)
    topic.append(ORDERS, ("d", {"id": 1}), partition=1, committed_us=7 * SECOND)
    topic.append(ORDERS, ("t", {}), partition=1)
    sink = bench.sink(tables={"*": {"mode": "append"}})
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    await sink.close()

    rows = sorted(all_orders(bench), key=lambda row: int(row["_headwater_offset"]))
    assert [
        (row["id"], row["note"], row["_headwater_op"], row["_headwater_offset"]) for row in rows
    ] == [(1, "a", "c", 0), (1, "b", "u", 1), (1, None, "d", 3), (None, None, "t", 5)]
    assert {(row["_headwater_topic"], row["_headwater_partition"]) for row in rows} == {
        (topic.name, 1)
    }
    assert rows[2]["_headwater_committed_at"] == moment(7)


async def test_scd2_keeps_a_row_per_version_within_and_across_slices(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(
        ORDERS,
        ("c", {"id": 1, "note": "a"}),
        ("u", {"id": 1, "note": "never seen"}),
        ("u", {"id": 1, "note": "b"}),
        ("c", {"id": 2, "note": "x"}),
        committed_us=[1 * SECOND, 2 * SECOND, 2 * SECOND, 3 * SECOND],
    )
    sink = bench.sink(tables={"*": {"mode": "scd2"}})
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(
        ORDERS,
        ("u", {"id": 1, "note": "c"}),
        ("d", {"id": 2}),
        committed_us=[4 * SECOND, 5 * SECOND],
    )
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 2, "note": "y"}), committed_us=6 * SECOND)
    topic.append(ORDERS, ("u", {"id": 2, "note": "z"}), committed_us=6 * SECOND)
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("u", {"id": 2, "note": "zz"}), committed_us=6 * SECOND)
    await sink.apply(topic.slice())
    await sink.close()

    assert versions(all_orders(bench)) == [
        (1, "a", moment(1), moment(2), False),
        (1, "b", moment(2), moment(4), False),
        (1, "c", moment(4), None, True),
        (2, "x", moment(3), moment(5), False),
        (2, "zz", moment(6), None, True),
    ]


async def test_a_truncate_ends_the_current_versions(bench: SqlBench) -> None:
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), committed_us=1 * SECOND)
    topic.append(ORDERS, ("t", {}), committed_us=2 * SECOND)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}), committed_us=3 * SECOND)
    sink = bench.sink(tables={"*": {"mode": "scd2"}})
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    await sink.close()

    assert versions(all_orders(bench)) == [
        (1, "a", moment(1), moment(2), False),
        (2, "b", moment(3), None, True),
    ]


async def test_a_truncate_of_one_of_several_merged_tables_takes_only_its_rows(
    bench: SqlBench,
) -> None:
    """A route that adds the tenant to the key fills it in the truncate's row as well."""
    merged = schema_of("crm.orders", key=("tenant", "id"), tenant=pa.string(), id=pa.int64())
    topics = [ScriptedTopic(f"shop.tenant_{name}.orders", name) for name in "ab"]
    sink = bench.sink()
    await sink.committed_offsets([topic.name for topic in topics])
    for topic in topics:
        topic.append(merged, *(("c", {"tenant": topic.topic_id, "id": n}) for n in (1, 2)))
        await sink.apply(topic.slice())
    topics[0].append(merged, ("t", {"tenant": "a"}))
    await sink.apply(topics[0].slice())
    await sink.close()

    assert {(row["tenant"], row["id"]) for row in all_orders(bench)} == {("b", 1), ("b", 2)}


def all_orders(bench: SqlBench) -> list[dict[str, Any]]:
    return bench.all_rows("orders")
