"""What a sink with modes does in each of them: inherit `ModeContract`, and offer a target."""

from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
import pytest

from headwater.sinks.sink import Sink
from tests.contract.sink_suite import ORDERS
from tests.slices import ScriptedTopic, schema_of

SECOND = 1_000_000


class ModeBench(Protocol):
    """One empty target."""

    def sink_of(self, *, mode: str = "mirror", deletes: str = "hard") -> Sink: ...

    def all_rows(self, table: str) -> list[dict[str, Any]]:
        """With the columns that the sink has added; without a table there is no row."""
        ...


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def rows_of(target: ModeBench, table: str = "public.orders") -> list[dict[str, Any]]:
    """Times with their zone, which a database may lack."""
    return [
        {
            name: each.replace(tzinfo=UTC) if isinstance(each, datetime) else each
            for name, each in row.items()
        }
        for row in target.all_rows(table)
    ]


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


async def apply(target: ModeBench, *topics: ScriptedTopic, **chosen: str) -> None:
    """What is new of these topics, by a sink of its own."""
    sink = target.sink_of(**chosen)
    await sink.committed_offsets([topic.name for topic in topics])
    for topic in topics:
        await sink.apply(topic.slice())
    await sink.close()


class ModeContract:
    """A subclass offers a fixture `target`."""

    async def test_soft_deletes_say_since_when_and_a_row_that_comes_back_forgets_it(
        self, target: ModeBench
    ) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, *(("c", {"id": number, "note": "a"}) for number in (1, 2, 3)))
        await apply(target, topic, deletes="soft")
        topic.append(ORDERS, ("d", {"id": 1}), ("d", {"id": 2}), committed_us=5 * SECOND)
        await apply(target, topic, deletes="soft")
        topic.append(ORDERS, ("c", {"id": 2, "note": "again"}), ("d", {"id": 9}))

        await apply(target, topic, deletes="soft")

        rows = {row["id"]: (row["note"], row["_headwater_deleted_at"]) for row in rows_of(target)}
        assert rows == {1: ("a", moment(5)), 2: ("again", None), 3: ("a", None)}

    @pytest.mark.parametrize("key", [("rate",), ("rate", "id")])
    @pytest.mark.parametrize("chosen", [{"deletes": "soft"}, {"mode": "mirror"}, {"mode": "scd2"}])
    async def test_zero_and_negative_zero_are_one_key(
        self, target: ModeBench, chosen: dict[str, str], key: tuple[str, ...]
    ) -> None:
        """As for the databases whose rows have them."""
        schema = schema_of(
            "public.rates", key=key, rate=pa.float64(), id=pa.int64(), note=pa.string()
        )
        topic = ScriptedTopic()
        zero, negative = {"rate": 0.0, "id": 1}, {"rate": -0.0, "id": 1}
        topic.append(schema, ("c", {**zero, "note": "a"}), committed_us=1 * SECOND)
        await apply(target, topic, **chosen)
        moves = ("d", zero), ("c", {**negative, "note": "b"})
        topic.append(schema, *moves, committed_us=2 * SECOND)
        await apply(target, topic, **chosen)
        moves = ("d", negative), ("c", {**zero, "note": "c"})
        topic.append(schema, *moves, committed_us=3 * SECOND)
        moves = ("d", zero), ("c", {**negative, "note": "d"})
        topic.append(schema, *moves, committed_us=4 * SECOND)

        await apply(target, topic, **chosen)

        rows = rows_of(target, "public.rates")
        if chosen.get("mode") == "scd2":
            assert [row["note"] for row in sorted(rows, key=lambda row: row["note"])] == [*"abcd"]
            rows = [row for row in rows if row["_headwater_is_current"]]
        assert [(row["rate"], row["note"]) for row in rows] == [(0.0, "d")]
        assert rows[0].get("_headwater_deleted_at") is None

    async def test_deletes_can_be_ignored(self, target: ModeBench) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "a"}))
        await apply(target, topic, deletes="ignore")
        topic.append(ORDERS, ("d", {"id": 1}), ("u", {"id": 2, "note": "b"}))
        topic.append(ORDERS, ("t", {}))

        await apply(target, topic, deletes="ignore")

        assert {row["id"]: row["note"] for row in rows_of(target)} == {1: "a", 2: "b"}

    async def test_append_keeps_every_change_with_its_place_in_the_log(
        self, target: ModeBench
    ) -> None:
        topic = ScriptedTopic()
        changes = ("c", {"id": 1, "note": "a"}), ("u", {"id": 1, "note": "b"})
        topic.append(ORDERS, *changes, partition=1)
        topic.append(ORDERS, ("d", {"id": 1}), partition=1, committed_us=7 * SECOND)
        topic.append(ORDERS, ("t", {}), partition=1)

        await apply(target, topic, mode="append")

        rows = sorted(rows_of(target), key=lambda row: int(row["_headwater_offset"]))
        assert [
            (row["id"], row["note"], row["_headwater_op"], row["_headwater_offset"]) for row in rows
        ] == [(1, "a", "c", 0), (1, "b", "u", 1), (1, None, "d", 3), (None, None, "t", 5)]
        assert {(row["_headwater_topic"], row["_headwater_partition"]) for row in rows} == {
            (topic.name, 1)
        }
        assert rows[2]["_headwater_committed_at"] == moment(7)

    async def test_scd2_keeps_a_row_per_version_within_and_across_slices(
        self, target: ModeBench
    ) -> None:
        topic = ScriptedTopic()
        topic.append(
            ORDERS,
            ("c", {"id": 1, "note": "a"}),
            ("u", {"id": 1, "note": "never seen"}),
            ("u", {"id": 1, "note": "b"}),
            ("c", {"id": 2, "note": "x"}),
            committed_us=[1 * SECOND, 2 * SECOND, 2 * SECOND, 3 * SECOND],
        )
        await apply(target, topic, mode="scd2")
        topic.append(
            ORDERS,
            ("u", {"id": 1, "note": "c"}),
            ("d", {"id": 2}),
            committed_us=[4 * SECOND, 5 * SECOND],
        )
        await apply(target, topic, mode="scd2")
        topic.append(ORDERS, ("c", {"id": 2, "note": "y"}), committed_us=6 * SECOND)
        topic.append(ORDERS, ("u", {"id": 2, "note": "z"}), committed_us=6 * SECOND)
        await apply(target, topic, mode="scd2")
        topic.append(ORDERS, ("u", {"id": 2, "note": "zz"}), committed_us=6 * SECOND)

        await apply(target, topic, mode="scd2")

        assert versions(rows_of(target)) == [
            (1, "a", moment(1), moment(2), False),
            (1, "b", moment(2), moment(4), False),
            (1, "c", moment(4), None, True),
            (2, "x", moment(3), moment(5), False),
            (2, "zz", moment(6), None, True),
        ]

    async def test_versions_of_a_row_follow_each_other_where_the_clock_goes_back(
        self, target: ModeBench
    ) -> None:
        """A later version is no earlier than what the table has of its key; of those of one moment
        the last one stays."""
        topic = ScriptedTopic()
        for letter, row, at in (
            ("c", {"id": 1, "note": "a"}, 5),
            ("c", {"id": 2, "note": "x"}, 1),
            ("u", {"id": 1, "note": "b"}, 9),
            ("u", {"id": 1, "note": "c"}, 7),
            ("d", {"id": 1}, 6),
            ("u", {"id": 2, "note": "y"}, 2),
            ("c", {"id": 1, "note": "d"}, 4),
        ):
            topic.append(ORDERS, (letter, row), committed_us=at * SECOND)
            await apply(target, topic, mode="scd2")
        topic.append(ORDERS, ("u", {"id": 1, "note": "e"}), committed_us=10 * SECOND)
        topic.append(ORDERS, ("u", {"id": 1, "note": "f"}), committed_us=8 * SECOND)

        await apply(target, topic, mode="scd2")

        assert versions(rows_of(target)) == [
            (1, "a", moment(5), moment(9), False),
            (1, "d", moment(9), moment(10), False),
            (1, "f", moment(10), None, True),
            (2, "x", moment(1), moment(2), False),
            (2, "y", moment(2), None, True),
        ]

    async def test_a_truncate_ends_the_current_versions(self, target: ModeBench) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), committed_us=1 * SECOND)
        topic.append(ORDERS, ("t", {}), committed_us=2 * SECOND)
        topic.append(ORDERS, ("c", {"id": 2, "note": "b"}), committed_us=3 * SECOND)

        await apply(target, topic, mode="scd2")

        assert versions(rows_of(target)) == [
            (1, "a", moment(1), moment(2), False),
            (2, "b", moment(3), None, True),
        ]

    async def test_a_truncate_marks_rows_that_are_kept_softly(self, target: ModeBench) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": "a"}))
        await apply(target, topic, deletes="soft")
        topic.append(ORDERS, ("t", {}), committed_us=2 * SECOND)
        topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))

        await apply(target, topic, deletes="soft")

        rows = {row["id"]: (row["note"], row["_headwater_deleted_at"]) for row in rows_of(target)}
        assert rows == {1: ("a", moment(2)), 2: ("b", None)}

    async def test_a_truncate_of_one_of_several_merged_tables_takes_only_its_rows(
        self, target: ModeBench
    ) -> None:
        """A route that adds the tenant to the key fills it in the truncate's row as well."""
        merged = schema_of("crm.orders", key=("tenant", "id"), tenant=pa.string(), id=pa.int64())
        topics = [ScriptedTopic(f"shop.tenant_{name}.orders", name) for name in "ab"]
        for topic in topics:
            topic.append(merged, *(("c", {"tenant": topic.topic_id, "id": n}) for n in (1, 2)))
        await apply(target, *topics)
        topics[0].append(merged, ("t", {"tenant": "a"}))

        await apply(target, topics[0])

        rows = rows_of(target, "crm.orders")
        assert {(row["tenant"], row["id"]) for row in rows} == {("b", 1), ("b", 2)}
