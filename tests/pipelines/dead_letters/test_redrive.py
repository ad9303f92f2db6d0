"""A record that is put back reaches its table, unless a newer record of its key already has."""

import os
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.records.record_headers import header_lists
from headwater.core_log.rows.codec import TRUNCATE_KEY
from headwater.pipelines.dead_letters import redrive as redriving
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    FailureStage,
    append_dead_letters,
    dead_letter_topic,
    read_dead_letters,
)
from headwater.pipelines.dead_letters.redrive import RedriveResult, redrive
from headwater.pipelines.journal.commits import encode_positions, positions_home
from headwater.pipelines.journal.generations import TopicLineage, TopicSwitch, line_part
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.loops.deliver.deliver import deliver as run
from tests.memory_log import Fuse, MemoryTransaction
from tests.pipelines.pipeline_in_memory import PIPELINE, MemorySink, Transaction, World, fold

ORDERS = TopicPartition("shop.public.orders", 0)


async def world_of(script: list[Transaction], *, aside: set[int]) -> World:
    """A pipeline that has run, and set these records of `orders` aside."""
    world = World(script)
    await world.log.ensure_topic(dead_letter_topic(PIPELINE))
    world.log.fuse = Fuse()
    for topic in internal_topics(history_ms=1_000):
        await world.log.ensure_topic(topic)
    await world.ingest(Fuse())
    dead_letters = await letters_at(world, aside)
    await append_dead_letters(world.log, PIPELINE, dead_letters, now_ms=1)
    await deliver(world, skipped=aside)
    return world


async def deliver(world: World, *, skipped: Collection[int] = ()) -> None:
    delivery = world.delivery(MemorySink(world.target, Fuse()), records=100)
    delivery.rejected._skipped[ORDERS] = set(skipped)
    await run(delivery, until_end=True)


async def letters_at(world: World, offsets: set[int]) -> list[DeadLetter]:
    found = []
    for entry in world.log.partitions[ORDERS].entries:
        columns = arrow_codec.decode(entry.data)
        for place, offset in enumerate(columns.offsets.tolist()):
            if offset in offsets:
                pairs = header_lists(columns.headers)[place].as_py()
                found.append(
                    DeadLetter(
                        topic=ORDERS.topic,
                        partition=0,
                        offset=offset,
                        key=columns.keys[place].as_py(),
                        value=columns.values[place].as_py(),
                        headers=tuple((each["key"].decode(), each["value"]) for each in pairs),
                        stage=FailureStage.SINK,
                        error="did not fit",
                        at="",
                        table="public.orders",
                    )
                )
    return found


async def put_back(world: World) -> list[RedriveResult]:
    dead_letters = await read_dead_letters(world.log, PIPELINE)
    return [
        each.fate
        for each in await redrive(world.log, PIPELINE, dead_letters, now_ms=1_700_000_000_001)
    ]


def created(key: int, value: str) -> Transaction:
    return [[("orders", "c", key, value)]]


def updated(key: int, value: str) -> Transaction:
    return [[("orders", "u", key, value)]]


async def test_a_record_that_nothing_overtook_is_applied_and_its_letter_is_gone() -> None:
    world = await world_of([created(1, "a"), created(2, "b")], aside={0})
    assert world.target.tables == {"orders": {2: "b"}}

    fates = await put_back(world)
    await deliver(world)

    assert fates == [RedriveResult.REDRIVEN]
    assert world.target.tables == {"orders": {1: "a", 2: "b"}}
    assert await read_dead_letters(world.log, PIPELINE) == []


async def test_more_than_a_batch_may_hold_goes_back_in_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redriving, "BATCH_BYTES_MAX", 1)
    script = [created(1, "a"), created(2, "b"), created(3, "c"), updated(2, "new")]
    world = await world_of(script, aside={0, 1, 2})

    fates = await put_back(world)
    await deliver(world)

    redriven = RedriveResult.REDRIVEN
    assert fates == [redriven, RedriveResult.OVERTAKEN, redriven]
    written = [entry.data for entry in world.log.partitions[ORDERS].entries if entry.data]
    assert [len(arrow_codec.decode(each).offsets) for each in written[-2:]] == [1, 1]
    assert world.target.tables == {"orders": {1: "a", 2: "new", 3: "c"}}


@pytest.mark.slow
async def test_dead_letters_that_are_larger_together_than_any_batch_go_back(
    tmp_path: Path,
) -> None:
    rows = TopicPartition("shop.t", 0)
    records = [PlainRecord(b"%d" % number, os.urandom(300_000)) for number in range(5)]
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    try:
        for topic in (*internal_topics(history_ms=1_000), dead_letter_topic(PIPELINE)):
            await log.ensure_topic(topic)
        await log.ensure_topic(TopicSettings(name=rows.topic))
        for record in records:
            await log.append(rows, Batch(encode_batch([record]), 1))
        dead_letters = [
            DeadLetter(rows.topic, 0, offset, each.key, each.value, (), FailureStage.SINK, "", "")
            for offset, each in enumerate(records)
        ]
        await append_dead_letters(log, PIPELINE, dead_letters, now_ms=1)
        stored = await read_dead_letters(log, PIPELINE)

        told = await redrive(log, PIPELINE, stored, now_ms=2)

        assert {each.fate for each in told} == {RedriveResult.REDRIVEN} and len(told) == 5
        assert await read_dead_letters(log, PIPELINE) == []
    finally:
        await log.close()


async def test_an_old_value_never_replaces_a_newer_row() -> None:
    world = await world_of([created(1, "old"), updated(1, "new")], aside={0})

    fates = await put_back(world)
    await deliver(world)

    assert fates == [RedriveResult.OVERTAKEN]
    assert world.target.tables == {"orders": {1: "new"}}
    assert [each.dead_letter.offset for each in await read_dead_letters(world.log, PIPELINE)] == [0]


async def test_a_delete_goes_back_with_its_tombstone() -> None:
    world = await world_of([created(1, "a"), [[("orders", "d", 1, "")]]], aside={1})
    assert world.target.tables == {"orders": {1: "a"}}

    fates = await put_back(world)
    await deliver(world)

    written = [entry.data for entry in world.log.partitions[ORDERS].entries if entry.data]
    last = arrow_codec.decode(written[-1])
    assert fates == [RedriveResult.REDRIVEN]
    assert last.values.is_valid().to_pylist() == [True, False]
    assert world.target.tables == {"orders": {}}


async def test_a_deleted_or_truncated_row_does_not_come_back() -> None:
    script = [
        created(1, "a"),
        created(2, "b"),
        [[("orders", "d", 1, "")]],
        [[("orders", "t", 0, "")]],
    ]
    world = await world_of(script, aside={0, 1})

    assert await put_back(world) == [RedriveResult.OVERTAKEN, RedriveResult.OVERTAKEN]


async def test_a_row_without_a_key_does_not_come_back_into_a_truncated_table() -> None:
    world = await world_of([created(1, "a"), [[("orders", "t", 0, "")]]], aside={0})
    [stored] = await read_dead_letters(world.log, PIPELINE)
    keyless = replace(stored, dead_letter=replace(stored.dead_letter, key=None))

    [done] = await redrive(world.log, PIPELINE, [keyless], now_ms=2)

    assert done.fate is RedriveResult.OVERTAKEN


async def test_a_tombstone_that_compaction_left_overtakes_as_well() -> None:
    world = await world_of([created(1, "a"), created(2, "b"), created(3, "c")], aside={0})
    dead_letters = await read_dead_letters(world.log, PIPELINE)
    key = dead_letters[0].dead_letter.key
    tombstone = Batch(encode_batch([PlainRecord(key, None, timestamp_ms=1)]), 1, 1)
    await world.log.append(ORDERS, tombstone)

    assert await put_back(world) == [RedriveResult.OVERTAKEN]


async def test_a_row_of_a_topic_that_was_made_anew_does_not_replace_one_of_the_new_topic() -> None:
    world = await world_of([created(1, "new")], aside={0})
    [stored] = await read_dead_letters(world.log, PIPELINE)
    former = replace(stored.dead_letter, offset=7, topic_id="of the former topic")
    await append_dead_letters(world.log, PIPELINE, [former], now_ms=2)

    assert sorted(fate.name for fate in await put_back(world)) == ["ANEW", "REDRIVEN"]


async def test_a_dead_letter_that_was_no_record_stays_where_it_is() -> None:
    world = await world_of([created(1, "a")], aside={0})
    [stored] = await read_dead_letters(world.log, PIPELINE)
    piece = replace(
        stored, dead_letter=replace(stored.dead_letter, offset=-1, partition=-1, topic="")
    )

    [done] = await redrive(world.log, PIPELINE, [piece], now_ms=2)

    assert done.fate is RedriveResult.NO_RECORD


class Rival:
    """Appends a newer record of a key each time that somebody is about to append."""

    def __init__(self, key: bytes, times: int) -> None:
        self.key, self.times = key, times
        self.append = MemoryTransaction.append

    async def __call__(
        self, transaction: MemoryTransaction, partition: TopicPartition, batch: Batch
    ) -> int:
        if partition == ORDERS and self.times:
            self.times -= 1
            newer = Batch(encode_batch([PlainRecord(self.key, b"{}", timestamp_ms=1)]), 1, 1)
            await transaction.writer.log.append(ORDERS, newer)
        return await self.append(transaction, partition, batch)


async def test_a_newer_record_that_comes_while_we_look_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await world_of([created(1, "a")], aside={0})
    [stored] = await read_dead_letters(world.log, PIPELINE)
    rival = Rival(stored.dead_letter.key or b"", times=1)
    monkeypatch.setattr(
        MemoryTransaction, "append", lambda self, place, batch: rival(self, place, batch)
    )

    assert await put_back(world) == [RedriveResult.OVERTAKEN]


async def test_the_others_go_back_although_one_was_overtaken_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await world_of([created(1, "a"), created(2, "b")], aside={0, 1})
    dead_letters = await read_dead_letters(world.log, PIPELINE)
    rival = Rival(dead_letters[0].dead_letter.key or b"", times=3)
    monkeypatch.setattr(
        MemoryTransaction, "append", lambda self, place, batch: rival(self, place, batch)
    )

    assert await put_back(world) == [RedriveResult.OVERTAKEN, RedriveResult.REDRIVEN]


STEPS = st.lists(st.tuples(st.sampled_from("ucdt"), st.integers(0, 2)), min_size=1, max_size=8)


def script_of(steps: list[tuple[str, int]]) -> list[Transaction]:
    """Only what can happen, every value once."""
    script: list[Transaction] = []
    there: set[int] = set()
    for number, (dead_letter, key) in enumerate(steps):
        if dead_letter == "t":
            there.clear()
        elif dead_letter == "d":
            if key not in there:
                continue
            there.discard(key)
        else:
            dead_letter = "u" if key in there else "c"
            there.add(key)
        script.append([[("orders", dead_letter, key, f"v{number}")]])
    return script


def change_offsets(world: World) -> set[int]:
    """Of records that hold a change of a row."""
    found: set[int] = set()
    for entry in world.log.partitions[ORDERS].entries:
        columns = arrow_codec.decode(entry.data)
        found |= {
            offset
            for offset, key, value in zip(
                columns.offsets.tolist(),
                columns.keys.to_pylist(),
                columns.values.to_pylist(),
                strict=True,
            )
            if value is not None and key != TRUNCATE_KEY
        }
    return found


@pytest.mark.property
@settings(max_examples=settings().max_examples // 8)
@given(steps=STEPS, chosen=st.sets(st.integers(0, 12)))
async def test_a_target_equals_its_source_after_everything_is_redriven(
    steps: list[tuple[str, int]], chosen: set[int]
) -> None:
    script = script_of(steps)
    changes = change_offsets(await world_of(script, aside=set()))
    world = await world_of(script, aside=chosen & changes)

    await put_back(world)
    await deliver(world, skipped=chosen & changes)

    assert world.target.tables.get("orders", {}) == fold(script).get("orders", {})


async def test_a_letter_of_a_former_topic_stays_where_it_is() -> None:
    world = await world_of([[[("orders", "c", 1, "a")]], [[("orders", "c", 2, "b")]]], aside={0})
    switch = TopicSwitch(ORDERS.topic, f"{ORDERS.topic}.g2", {0: 4}, {0: 2}, {0: 2})
    await world.log.append(
        positions_home(PIPELINE),
        encode_positions(PIPELINE, line_part(ORDERS.topic, TopicLineage((switch,))), now_ms=1),
    )

    fates = await put_back(world)

    assert fates == [RedriveResult.FORMER]
    assert len(await read_dead_letters(world.log, PIPELINE)) == 1
