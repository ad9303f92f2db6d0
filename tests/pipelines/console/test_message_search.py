"""The log's pages find every message once, say how far they looked, and show nothing hidden."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.pipelines.console.hidden_columns import HIDDEN, NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.console.message_search import (
    LookBudget,
    MessageFilter,
    MessagePage,
    MessageTail,
    search,
)
from headwater.pipelines.console.shown_records import RecordReader, ShownRecord
from headwater.pipelines.console.topic_pages import table_topics
from headwater.pipelines.terminal.starting_points import resolve
from headwater.pipelines.time_travel.history.key_history import key_bytes
from tests.pipelines.console.served_console import served_console, sources_of
from tests.pipelines.pipeline_in_memory import tables_of
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

TOPIC = "shop.public.orders"
EVERYTHING = MessageFilter()
HOSTILE = "<img src=x onerror=alert(1)> \u202etxt.exe \x00 end"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "data") as log:
        yield log


def write_orders(served: ServedLog, count: int, *, partitions: int = 1) -> None:
    served.write(
        *[
            tables_of([("orders", "c", key, f"value {key}")], commit=key + 1)
            for key in range(count)
        ],
        partitions=partitions,
    )


async def look(
    served: ServedLog,
    wanted: MessageFilter = EVERYTHING,
    *,
    limit: int = 1_000,
    until: str = "latest",
    hidden: HiddenColumns = NOTHING_HIDDEN,
    budget: LookBudget | None = None,
) -> MessagePage:
    log = served.log
    stored = (await table_topics(log))[TOPIC]
    shown = hidden.view(stored.pipeline, stored.schema)
    places = [TopicPartition(TOPIC, each) for each in range(await log.partition_count(TOPIC))]
    upper = await resolve(log, places, until, now_ms=0)
    bounds = await log.bounds(places)
    return await search(
        log,
        RecordReader(log, TOPIC, shown),
        wanted,
        lower={at: bounds[at].start for at in upper},
        upper=upper,
        limit=limit,
        hidden=shown.hidden,
        budget=budget or LookBudget(),
    )


def places_of(messages: Sequence[ShownRecord]) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in messages]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 7, 50])
def test_pages_have_every_message_once_and_the_newest_first(served: ServedLog, limit: int) -> None:
    write_orders(served, 60, partitions=3)

    async def read() -> list[MessagePage]:
        pages = [await look(served, limit=limit)]
        while pages[-1].next is not None:
            pages.append(await look(served, limit=limit, until=pages[-1].next))
        return pages

    pages = served.run(read)
    messages = [each for page in pages for each in page.messages]
    assert len(set(places_of(messages))) == len(messages) == 60
    assert {each.key for each in messages} == {str(key) for key in range(60)}
    for partition in range(3):
        offsets = [each.offset for each in messages if each.partition == partition]
        assert offsets == sorted(offsets, reverse=True)
    times = [each.appended_ms for each in messages]
    assert times == sorted(times, reverse=True)
    assert pages[-1].left == 0


@pytest.mark.slow
def test_a_spent_budget_ends_a_look_and_the_next_one_goes_on(served: ServedLog) -> None:
    write_orders(served, 200)
    wanted = MessageFilter(contains="value 3")

    async def look_a_little(until: str) -> MessagePage:
        return await look(served, wanted, until=until, limit=20, budget=LookBudget(bytes_max=1))

    async def read() -> list[MessagePage]:
        pages = [await look_a_little("latest")]
        while pages[-1].next is not None:
            pages.append(await look_a_little(pages[-1].next))
        return pages

    pages = served.run(read)
    assert len(pages) > 2
    assert all(page.left < before.left for before, page in pairwise(pages))
    found = [each.key for page in pages for each in page.messages]
    assert sorted(map(str, found)) == sorted(
        str(key) for key in range(200) if str(key).startswith("3")
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_filter_finds_what_a_person_would(served: ServedLog, seed: int) -> None:
    random, alive = Random(seed), set[int]()
    for commit in range(1, 40):
        key = random.randrange(8)
        letter = random.choice("ud") if key in alive else "c"
        (alive.discard if letter == "d" else alive.add)(key)
        value = random.choice(["plain", "special"])
        served.write(tables_of([("orders", letter, key, value)], commit=commit))

    async def read() -> None:
        everything = (await look(served)).messages
        stored = (await table_topics(served.log))[TOPIC]
        keys = await key_bytes(served.log, stored, "3")
        cases: list[tuple[MessageFilter, Callable[[ShownRecord], bool]]] = [
            (MessageFilter(keys=keys), lambda each: each.key == "3" and each.operation is not None),
            (MessageFilter(operations=frozenset("d")), lambda each: each.operation == "d"),
            (
                MessageFilter(operations=frozenset("cu"), contains="special"),
                lambda each: each.operation in ("c", "u") and "special" in str(each.fields),
            ),
        ]
        for wanted, says in cases:
            found = [each for each in (await look(served, wanted)).messages if each.operation]
            assert places_of(found) == places_of([each for each in everything if says(each)])

    served.run(read)


def test_a_hidden_column_is_neither_shown_nor_searched(served: ServedLog) -> None:
    served.write(tables_of([("orders", "c", 1, "a secret"), ("orders", "d", 1, "")], commit=1))
    hidden = HiddenColumns({"shop": ["public.orders.value"]})

    async def read() -> None:
        page = await look(served, hidden=hidden)
        created = next(each for each in page.messages if each.operation == "c")
        assert [each.name for each in created.fields] == ["id"]
        assert all("secret" not in str(each) for each in page.messages)
        assert page.hidden == ["value"]
        found = await look(served, MessageFilter(contains="secret"), hidden=hidden)
        assert found.messages == [] and found.left == 0

    served.run(read)


def test_a_hidden_column_and_its_table_may_have_dots_in_their_names() -> None:
    def shown(table: str, *columns: str) -> tuple[str, ...]:
        schema = schema_of(table, key=(), **dict.fromkeys(columns, pa.string()))
        return hidden.view("shop", schema).names

    hidden = HiddenColumns({"shop": ["public.a.b", "public.a.c.d", "public.a.b.e"]})

    assert shown("public.a", "b", "c.d", "f") == ("f",)
    assert shown("public.a.b", "e", "f") == ("f",)
    assert shown("public.c", "b") == ("b",)


def test_a_column_that_is_named_without_its_schema_is_hidden() -> None:
    schema = schema_of("public.orders", id=pa.int64(), value=pa.string())
    other = schema_of("public.items", id=pa.int64(), value=pa.string())
    hidden = HiddenColumns({"shop": ["orders.value"]})

    assert hidden.view("shop", schema).names == ("id",)
    assert hidden.view("shop", other).names == ("id", "value")


def test_a_hidden_key_is_a_number_that_says_nothing(served: ServedLog) -> None:
    write_orders(served, 3)
    hidden = HiddenColumns({"shop": ["public.orders.id"]})

    async def read() -> None:
        page = await look(served, hidden=hidden)
        keys = {str(each.key) for each in page.messages}
        assert len(keys) == 3 and all(key.startswith("#") for key in keys)
        assert all(each.value is None for each in page.messages)

    served.run(read)


def test_a_hidden_name_that_the_table_lost_hides_all_of_it(served: ServedLog) -> None:
    write_orders(served, 3)
    hidden = HiddenColumns({"shop": ["public.orders.email"]})

    async def read() -> None:
        page = await look(served, hidden=hidden)
        assert page.messages and all(each.fields == [] for each in page.messages)
        assert all(each.value is None for each in page.messages)

    served.run(read)


def people(name: str, *columns: tuple[str, int]) -> TableSchema:
    """A table of texts whose columns have ids, as those of PostgreSQL do."""
    listed = [Column("id", pa.int64(), is_nullable=False, id=1)]
    listed += [Column(each, pa.string(), id=number) for each, number in columns]
    return TableSchema(TableId("public", name), tuple(listed), ("id",), id=7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "later",
    [people("people", ("mail", 2), ("email", 3)), people("users", ("email", 2), ("note", 3))],
    ids=["a column whose name another one has taken", "a table"],
)
def test_a_hidden_column_and_one_of_a_renamed_table_stay_hidden(
    served: ServedLog, later: TableSchema
) -> None:
    first = people("people", ("email", 2))
    hidden = HiddenColumns({"shop": ["public.people.email"]})
    served.write((changes_of(first, ("c", {"id": 1, "email": "a secret"})),))
    names = later.names[1:]
    row = dict(
        zip(names, ("a secret", "a secret" if "email" in names[1:] else "ours"), strict=True)
    )
    served.write((changes_of(later, ("c", {"id": 2, **row})),))

    async def read() -> None:
        async with served_console(sources_of(served.log, hidden=hidden)) as console:
            for table in {first.table, later.table}:
                past = await console.ask(f"/pipelines/shop/tables/{table}/changes")
                assert past["changes"] and "a secret" not in str(past)
                found = await console.ask(f"/topics/shop.{table}/messages?contains=secret")
                assert found["messages"] == []
                page = await console.ask(f"/topics/shop.{table}/messages")
                assert page["messages"] and "a secret" not in str(page)
                last = page["messages"][0]
                path = f"shop.{table}/0/{last['offset']}?appended_ms={last['appended_ms']}"
                traced = await console.ask(f"/pipelines/shop/transactions/{path}")
                assert traced["changes"] and "a secret" not in str(traced)

    served.run(read)


@pytest.mark.slow
def test_notes_of_a_source_about_rows_are_hidden_while_columns_are(served: ServedLog) -> None:
    write_orders(served, 1)
    note = {"snapshot/public.orders": '{"last": ["736563726574"]}', "stream": "0/16B3748"}
    status = {"pipelines": {"shop": {"tasks": {"source": {"positions": note}}}}}

    def shown(hidden: HiddenColumns) -> Any:
        return hidden.status(status)["pipelines"]["shop"]["tasks"]["source"]["positions"]

    async def read(hidden: HiddenColumns) -> str:
        async with served_console(sources_of(served.log, hidden=hidden)) as console:
            return str(await console.ask("/topics/__headwater_positions/messages"))

    hidden = HiddenColumns({"shop": ["public.orders.id"]})
    assert shown(hidden) == note | {"snapshot/public.orders": HIDDEN}
    assert shown(NOTHING_HIDDEN) == note
    place = "'value': '{\"version\":"
    assert place in served.run(lambda: read(NOTHING_HIDDEN))
    assert place not in served.run(lambda: read(hidden))


def test_records_that_are_no_events_are_shown_as_text(served: ServedLog) -> None:
    records = [
        PlainRecord(b"\xff\xfe", HOSTILE.encode(), (("h", b"\x00"),), 1),
        PlainRecord(None, b'{"id": 9007199254740993}', (), 2),
        PlainRecord(b"k", None, (), 3),
        PlainRecord(b"k", b"x" * 5_000, (), 4),
    ]

    async def read() -> None:
        await served.log.ensure_topic(TopicSettings(name="others"))
        place = TopicPartition("others", 0)
        batch = Batch(encode_batch(records), len(records), 4)
        await served.log.append(place, batch)
        page = await search(
            served.log,
            RecordReader(served.log, "others", None),
            EVERYTHING,
            lower={place: 0},
            upper={place: 4},
            limit=10,
            hidden=(),
            budget=LookBudget(),
        )
        long, tombstone, number, hostile = page.messages
        assert long.value is not None and len(long.value) == 2_001 and long.value.endswith("…")
        assert (tombstone.key, tombstone.value) == ("k", None)
        assert number.value == '{"id": 9007199254740993}'
        assert hostile.key == "base64://4=" and hostile.value == HOSTILE

    served.run(read)


def test_a_record_of_a_table_with_hidden_columns_that_is_no_event_is_hidden(
    served: ServedLog,
) -> None:
    write_orders(served, 1)

    async def read() -> None:
        foreign = Batch(encode_batch([PlainRecord(b"k", b"secret", (), 1)]), 1, 1)
        await served.log.append(TopicPartition(TOPIC, 0), foreign)
        hidden = HiddenColumns({"shop": ["public.orders.value"]})
        newest = (await look(served, hidden=hidden)).messages[0]
        assert (newest.key, newest.value) == (HIDDEN, HIDDEN)

    served.run(read)


def test_an_event_that_comes_before_its_schema_is_known_is_hidden(served: ServedLog) -> None:
    write_orders(served, 1)

    async def read() -> None:
        place = TopicPartition(TOPIC, 0)
        for hides_events in (True, False):
            page = await search(
                served.log,
                RecordReader(served.log, TOPIC, None, hides_events=hides_events),
                EVERYTHING,
                lower={place: 0},
                upper={place: 1},
                limit=1,
                hidden=(),
                budget=LookBudget(),
            )
            assert [each.value == HIDDEN for each in page.messages] == [hides_events]

    served.run(read)


@pytest.mark.slow
def test_dead_letters_are_hidden_among_messages_while_any_column_is(served: ServedLog) -> None:
    letters = TopicPartition("shop.dlq", 0)

    async def read() -> None:
        await served.log.ensure_topic(TopicSettings(name=letters.topic))
        failed = Batch(encode_batch([PlainRecord(b"secret", b"secret", (), 1)]), 1, 1)
        await served.log.append(letters, failed)
        for names, is_shown in (["public.orders.value"], False), ([], True):
            hidden = HiddenColumns({"shop": names})
            async with served_console(sources_of(served.log, hidden=hidden)) as console:
                for path in (
                    f"/topics/{letters.topic}/messages",
                    f"/topics/{letters.topic}/messages/0/0",
                ):
                    assert ("secret" in str(await console.ask(path))) is is_shown
                found = await console.ask(f"/topics/{letters.topic}/messages?contains=secret")
                assert bool(found["messages"]) is is_shown

    served.run(read)


def test_a_tail_shows_what_comes_and_counts_the_rest(
    served: ServedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.pipelines.console.message_search.TAILED_MAX", 2)
    monkeypatch.setattr("headwater.pipelines.console.message_search.INTERVAL_S", 0)
    write_orders(served, 1)
    place = TopicPartition(TOPIC, 0)

    async def begin() -> tuple[Any, Any]:
        stored = (await table_topics(served.log))[TOPIC]
        shown = NOTHING_HIDDEN.view(stored.pipeline, stored.schema)
        tail = MessageTail(served.log, RecordReader(served.log, TOPIC, shown), EVERYTHING)
        following = tail.follow([place])
        return following, asyncio.ensure_future(anext(following))

    following, first = served.run(begin)
    served.write(tables_of([("orders", "c", key, "new") for key in range(10, 15)], commit=9))

    async def read() -> None:
        seen = await first
        while not seen.messages:
            seen = await anext(following)
        assert [each.key for each in seen.messages] == ["14", "13"]
        assert seen.not_shown == 3
        await following.aclose()

    served.run(read)


@pytest.mark.slow
def test_a_number_that_no_log_has_is_refused_in_words(served: ServedLog) -> None:
    write_orders(served, 1, partitions=2)
    topic, traced = f"/topics/{TOPIC}/messages", f"/pipelines/shop/transactions/{TOPIC}"
    long = "9" * 5_000  # digits that Python turns into no number
    paths = [
        *(f"{topic}?{name}={text}" for name in ("partition", "limit") for text in ("%C2%B2", long)),
        *(f"{topic}?from={text}" for text in ("%C2%B2", f"0:{long}", f"{long}:0", f"{long}d")),
        *(f"{traced}/0/0?appended_ms={text}" for text in ("%C2%B2", "9" * 25, long)),
        f"{topic}/0/{'9' * 25}",
        f"{traced}/0/{long}?appended_ms=1",
        f"/pipelines/shop/letters/{long}",
        f"/pipelines/shop/tables/public.orders/changes?key={'[' * 5_000}",
    ]

    async def read() -> None:
        async with served_console(sources_of(served.log)) as console:
            for path in paths:
                status, error = await console.refusal(path)
                assert status < 500 and error["problem"], path
            for text in ("a\0b", "x" * 200_000):
                wanted = {"kind": "redrive", "target": "shop", "options": {"table": text}}
                status, error = await console.refusal("/plans", "POST", wanted)
                assert status == 400 and "no command takes such options" in error["problem"]

    served.run(read)


@pytest.mark.slow
def test_topics_and_groups_say_where_they_stand(served: ServedLog) -> None:
    write_orders(served, 5)

    async def read() -> None:
        await served.log.commit_offsets("headwater.shop.sink", {TopicPartition(TOPIC, 0): 2})
        async with served_console(sources_of(served.log)) as console:
            topics = {each["topic"]: each for each in await console.ask("/topics")}
            assert topics[TOPIC]["table"] == "public.orders"
            assert topics[TOPIC]["cleanup"] == "compact"
            assert topics[TOPIC]["bytes"] > 0 and topics[TOPIC]["last_minute"] > 0
            topic = await console.ask(f"/topics/{TOPIC}")
            [partition] = topic["partitions"]
            assert partition["newest_ms"] >= partition["oldest_ms"] > 0
            [group] = await console.ask("/groups")
            assert group["group"] == "headwater.shop.sink"
            page = await console.ask("/groups/headwater.shop.sink")
            [row] = page["partitions"]
            assert row["lag"] == group["lag"] == partition["stable"] - 2
            assert row["lag_ms"] is not None
            found = await console.ask(f"/topics/{TOPIC}/messages?key=3&operations=c")
            [message] = found["messages"]
            assert message["key"] == "3"
            whole = await console.ask(f"/topics/{TOPIC}/messages/0/{message['offset']}")
            assert {"headwater.schema", "headwater.at"} <= {
                each["name"] for each in whole["headers"]
            }
            flow = await console.ask(f"/topics/{TOPIC}/activity")
            assert sum(flow["counts"]) == partition["end"] - partition["start"]
            status, error = await console.refusal(f"/topics/{TOPIC}/messages?partition=7")
            assert status == 400 and "partition" in error["problem"]
            status, error = await console.refusal(f"/topics/{TOPIC}/messages/0/999999")
            assert status == 400

    served.run(read)
