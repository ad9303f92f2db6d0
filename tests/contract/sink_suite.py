"""What every sink promises: inherit `SinkContract`, say how to make one, and what it can do."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import count
from typing import Any, Protocol

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import Fenced, RecordsRejected, SinkUnavailable
from headwater.core_log.model.changes import TableChanges
from headwater.sinks.sink import AppliedOffset, Sink, Slice
from tests.slices import ScriptedTopic, failing, schema_of, together

ORDERS = schema_of("public.orders", id=pa.int64(), note=pa.string())
WIDER = schema_of("public.orders", id=pa.int64(), note=pa.string(), more=pa.int64())
WIDEST = schema_of(
    "public.orders", id=pa.int64(), note=pa.string(), more=pa.int64(), most=pa.int64()
)
ITEMS = schema_of("public.items", id=pa.int64(), price=pa.float64())
AUDIT = schema_of("public.audit", key=(), at=pa.int64(), what=pa.string())


class Bench(Protocol):
    """One empty target, and as many sinks of one pipeline on it as a test wants."""

    def sink(self) -> Sink: ...

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """What a reader of the target sees of a table of the source, in any order, without the
        columns that the sink has added; an empty list when there is no such table."""
        ...

    def poison(self) -> tuple[Any, dict[str, Any]] | None:
        """A schema, and a row under it that the target cannot hold; None where it holds all."""
        ...


def by_id(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["id"], str(row)))


async def offsets(sink: Sink, *topics: str) -> dict[str, int]:
    found = await sink.committed_offsets(topics)
    assert found is not None
    return {
        f"{part.topic}/{part.partition}": applied.next_offset for part, applied in found.items()
    }


class SinkContract:
    """A subclass offers a fixture `bench`. Its flags say which promises are not made."""

    remembers = True
    """`applied` knows what the target holds, and `apply` is conditional on it."""
    is_atomic = True
    """Of a slice all is visible or nothing."""
    keeps_newest = True
    """One row per key, deletes and truncates take rows away; else every change stays visible."""

    async def test_a_fresh_target_says_that_it_starts_afresh(self, bench: Bench) -> None:
        sink = bench.sink()

        answer = await sink.committed_offsets(["shop.public.orders"])

        assert answer == ({} if self.remembers else None)
        await sink.close()

    async def test_applied_rows_are_there_and_another_sink_goes_on_from_there(
        self, bench: Bench
    ) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("c", {"id": 2, "note": None}))
        first = bench.sink()
        await first.committed_offsets([topic.name])
        await first.apply(topic.slice())
        await first.close()

        second = bench.sink()
        stood = await second.committed_offsets([topic.name])
        topic.append(ORDERS, ("c", {"id": 3, "note": "ü € \U0001f600 '\"\\;--%s %"}))
        await second.apply(topic.slice())

        if self.remembers:
            assert stood is not None
            assert [*stood.values()] == [AppliedOffset(topic.topic_id, 3)]
        assert by_id(await bench.rows("public.orders")) == [
            {"id": 1, "note": "a"},
            {"id": 2, "note": None},
            {"id": 3, "note": "ü € \U0001f600 '\"\\;--%s %"},
        ]
        await second.close()

    async def test_several_tables_are_applied_in_one_slice(self, bench: Bench) -> None:
        orders, items = ScriptedTopic(), ScriptedTopic("shop.public.items", "topic-2")
        orders.append(ORDERS, ("r", {"id": 1, "note": "a"}))
        items.append(ITEMS, ("r", {"id": 7, "price": 1.5}), ("r", {"id": 8, "price": None}))
        sink = bench.sink()
        await sink.committed_offsets([orders.name, items.name])

        await sink.apply(together(orders.slice(), items.slice()))

        assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
        assert by_id(await bench.rows("public.items")) == [
            {"id": 7, "price": 1.5},
            {"id": 8, "price": None},
        ]
        if self.remembers:
            assert await offsets(sink, orders.name, items.name) == {
                f"{orders.name}/0": 2,
                f"{items.name}/0": 3,
            }
        await sink.close()

    async def test_a_slice_without_changes_moves_the_target_on(self, bench: Bench) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])

        await sink.apply(topic.slice(without=[0]))

        assert await bench.rows("public.orders") == []
        if self.remembers:
            assert await offsets(sink, topic.name) == {f"{topic.name}/0": 2}
        await sink.close()

    async def test_one_of_two_interleaved_sinks_is_fenced_and_nothing_doubles(
        self, bench: Bench
    ) -> None:
        if not self.remembers:
            pytest.skip("this target cannot tell")
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        old, new = bench.sink(), bench.sink()
        await old.committed_offsets([topic.name])
        await old.apply(topic.slice())
        await new.committed_offsets([topic.name])
        topic.append(ORDERS, ("u", {"id": 1, "note": "b"}))
        part = topic.slice()

        await new.apply(part)
        with pytest.raises(Fenced):
            await old.apply(part)

        newest = [row for row in await bench.rows("public.orders") if row["note"] == "b"]
        assert newest == [{"id": 1, "note": "b"}]
        await old.close()
        await new.close()

    async def test_one_of_two_sinks_that_both_begin_is_fenced(self, bench: Bench) -> None:
        if not self.remembers:
            pytest.skip("this target cannot tell")
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        one, other = bench.sink(), bench.sink()
        await one.committed_offsets([topic.name])
        await other.committed_offsets([topic.name])
        part = topic.slice()

        await one.apply(part)
        with pytest.raises(Fenced):
            await other.apply(part)

        assert await bench.rows("public.orders") == [{"id": 1, "note": "a"}]
        await one.close()
        await other.close()

    async def test_a_slice_whose_answer_got_lost_is_not_applied_again(self, bench: Bench) -> None:
        if not self.remembers:
            pytest.skip("this target cannot tell")
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}), ("u", {"id": 1, "note": "b"}))
        part = topic.slice()
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(part)

        stood = await offsets(sink, topic.name)

        assert stood == {f"{topic.name}/0": part.end[topic._at(0)].next_offset}
        with pytest.raises(Fenced):
            await sink.apply(part)
        await sink.close()

    async def test_a_slice_that_breaks_off_leaves_nothing_and_succeeds_when_repeated(
        self, bench: Bench
    ) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
        part = topic.slice()
        sink = bench.sink()
        await sink.committed_offsets([topic.name])

        with pytest.raises(SinkUnavailable):
            await sink.apply(failing(part, SinkUnavailable("the power went")))
        left = await bench.rows("public.orders")
        stood = await sink.committed_offsets([topic.name])
        await sink.apply(part)

        if self.is_atomic:
            assert left == []
            assert not stood
        if self.is_atomic or self.keeps_newest:
            assert by_id(await bench.rows("public.orders")) == [
                {"id": 1, "note": "a"},
                {"id": 2, "note": "b"},
            ]
        await sink.close()

    async def test_a_sink_that_is_closed_in_a_slice_writes_no_more_of_it(
        self, bench: Bench
    ) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        sink, reads, pieces = bench.sink(), count(), count(1)
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(ORDERS, ("t", {}))
        topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
        topic.append(WIDER, ("c", {"id": 3, "note": "c", "more": 1}))
        topic.append(WIDEST, ("c", {"id": 4, "note": "d", "more": 1, "most": 2}))
        part = topic.slice()

        async def read(_: Slice) -> AsyncIterator[TableChanges]:
            if next(reads):
                raise SinkUnavailable("the slice is read again")
            async for changes in part.changes():
                yield changes
                if next(pieces) == 1:
                    await sink.close()
            raise SinkUnavailable("the slice has been read")

        with pytest.raises(SinkUnavailable):
            await sink.apply(replace(part, read=read))
        left = await bench.rows("public.orders")
        await sink.close()
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(part)

        if self.is_atomic:
            assert left == [{"id": 1, "note": "a"}]
        if self.is_atomic and self.keeps_newest:
            rows = by_id(await bench.rows("public.orders"))
            assert [(row["id"], row["note"]) for row in rows] == [(2, "b"), (3, "c"), (4, "d")]
        await sink.close()

    async def test_the_newest_change_of_a_key_wins_within_and_across_slices(
        self, bench: Bench
    ) -> None:
        if not self.keeps_newest:
            pytest.skip("every change stays visible here")
        topic = ScriptedTopic()
        topic.append(ORDERS, *(("c", {"id": number, "note": "old"}) for number in range(5)))
        topic.append(
            ORDERS,
            ("u", {"id": 0, "note": "new"}),
            ("d", {"id": 1}),
            ("d", {"id": 2}),
            ("c", {"id": 2, "note": "again"}),
        )
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(ORDERS, ("u", {"id": 3, "note": "later"}), ("d", {"id": 4}), ("d", {"id": 99}))
        await sink.apply(topic.slice())

        assert by_id(await bench.rows("public.orders")) == [
            {"id": 0, "note": "new"},
            {"id": 2, "note": "again"},
            {"id": 3, "note": "later"},
        ]
        await sink.close()

    async def test_keys_that_change_places_keep_their_rows(self, bench: Bench) -> None:
        if not self.keeps_newest:
            pytest.skip("every change stays visible here")
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "one"}), ("c", {"id": 2, "note": "two"}))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(
            ORDERS,
            ("d", {"id": 1}),
            ("c", {"id": 3, "note": "one"}),
            ("d", {"id": 2}),
            ("c", {"id": 1, "note": "two"}),
            ("d", {"id": 3}),
            ("c", {"id": 2, "note": "one"}),
        )
        await sink.apply(topic.slice())

        assert by_id(await bench.rows("public.orders")) == [
            {"id": 1, "note": "two"},
            {"id": 2, "note": "one"},
        ]
        await sink.close()

    async def test_a_truncate_takes_what_came_before_it_and_nothing_after(
        self, bench: Bench
    ) -> None:
        if not self.keeps_newest:
            pytest.skip("every change stays visible here")
        topic = ScriptedTopic()
        for partition in (0, 1):
            topic.append(ORDERS, ("c", {"id": partition, "note": "old"}), partition=partition)
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        for tens, note in ((10, "old"), (20, "middle"), (30, "new")):
            for partition in (0, 1):
                row = {"id": tens + partition, "note": note}
                topic.append(ORDERS, ("c", row), partition=partition)
            if note != "new":
                topic.append(ORDERS, ("t", {}), partition=0)
        await sink.apply(topic.slice())

        assert by_id(await bench.rows("public.orders")) == [
            {"id": 30, "note": "new"},
            {"id": 31, "note": "new"},
        ]
        await sink.close()

    async def test_a_column_that_comes_is_added_and_older_rows_stay(self, bench: Bench) -> None:
        wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), total=pa.float64())
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        topic.append(wider, ("c", {"id": 2, "note": "b", "total": 2.5}))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])

        await sink.apply(topic.slice())

        found = by_id(await bench.rows("public.orders"))
        assert [(row["id"], row.get("total")) for row in found] == [(1, None), (2, 2.5)]
        await sink.close()

    async def test_a_table_without_a_key_gets_every_change(self, bench: Bench) -> None:
        topic = ScriptedTopic("shop.public.audit")
        same = {"at": 1, "what": "login"}
        topic.append(AUDIT, ("c", same), ("c", same))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(AUDIT, ("c", {"at": 2, "what": "logout"}))
        await sink.apply(topic.slice())

        found = sorted(await bench.rows("public.audit"), key=lambda row: int(row["at"]))
        assert found == [same, same, {"at": 2, "what": "logout"}]
        await sink.close()

    async def test_a_decimal_of_more_digits_is_a_wider_one(self, bench: Bench) -> None:
        topic, columns = ScriptedTopic(), {"id": pa.int64(), "note": pa.string()}
        narrow = schema_of("public.orders", **columns, price=pa.decimal128(10, 2))
        wide = schema_of("public.orders", **columns, price=pa.decimal128(20, 4))
        topic.append(narrow, ("c", {"id": 1, "note": "a", "price": Decimal("-99999999.99")}))
        topic.append(narrow, ("c", {"id": 2}), ("c", {"id": 3, "price": Decimal("0.07")}))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())
        topic.append(wide, ("c", {"id": 4, "price": Decimal("9999999999999999.0001")}))
        await sink.apply(topic.slice())
        await sink.close()

        rows = by_id(await bench.rows("public.orders"))
        prices = [row["price"] and Decimal(row["price"]) for row in rows]
        assert prices == [
            Decimal("-99999999.99"), None, Decimal("0.07"), Decimal("9999999999999999.0001"),
        ]  # fmt: skip
        assert [row["note"] for row in rows] == ["a", None, None, None]

    async def test_a_record_that_does_not_fit_is_named_and_the_others_go_through(
        self, bench: Bench
    ) -> None:
        poison = bench.poison()
        if poison is None:
            pytest.skip("this target holds every value")
        schema, row = poison
        key = schema.key[0]
        topic = ScriptedTopic()
        topic.append(schema, *(("c", row if number == 5 else {key: number}) for number in range(9)))
        part = topic.slice()
        sink = bench.sink()
        await sink.committed_offsets([topic.name])

        with pytest.raises(RecordsRejected) as caught:
            await sink.apply(part)
        await sink.apply(topic.slice(start={0: 0}, without=[*caught.value.reasons]))

        assert caught.value.reasons.keys() == {5}
        assert (caught.value.topic, caught.value.partition) == (topic.name, 0)
        left = {found[key] for found in await bench.rows(str(schema.table))}
        assert left == {number for number in range(9) if number != 5}
        await sink.close()

    async def test_a_plan_and_an_examination_change_nothing(self, bench: Bench) -> None:
        sink = bench.sink()

        planned = await sink.plan([ORDERS, AUDIT])
        found = await sink.examine()

        assert planned and not [each for each in found if each.is_fatal]
        assert await bench.rows("public.orders") == []
        assert not await sink.committed_offsets(["shop.public.orders"])
        await sink.close()

    async def test_a_drop_takes_away_what_the_sink_has_made(self, bench: Bench) -> None:
        topic = ScriptedTopic()
        topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
        sink = bench.sink()
        await sink.committed_offsets([topic.name])
        await sink.apply(topic.slice())

        said = await sink.drop()

        assert said or not self.remembers
        if self.remembers:
            assert await bench.rows("public.orders") == []
            assert await sink.committed_offsets([topic.name]) == {}
        await sink.close()
