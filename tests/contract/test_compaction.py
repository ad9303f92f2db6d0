"""A compacted log keeps the newest record of every key, and says below where it took others."""

import asyncio
from collections.abc import Callable

import pytest

from headwater.core_log.model.log import Bounds, Isolation, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.contract.conftest import Ground
from tests.contract.records import AT_ONCE, NOW_MS

pytestmark = pytest.mark.parametrize(
    "ground",
    ["embedded", pytest.param("apache kafka", marks=pytest.mark.kafka)],
    indirect=True,  # the same broker compacts for those whom it serves
)

Held = list[tuple[int, str, str | None]]
"""Offset, key and value of every record that a reader gets."""


async def compacted_topic(
    ground: Ground, *, delete_retention_ms: str = "86400000"
) -> TopicPartition:
    """Every batch a second after the one before it gets a segment of its own."""
    (partition,) = await ground.topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "500",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": delete_retention_ms,
        }
    )
    return partition


def round_of(number: int, **values: str | None) -> Batch:
    timestamp_ms = NOW_MS - 30_000 + 1000 * number
    records = [
        PlainRecord(key.encode(), None if value is None else value.encode(), (), timestamp_ms)
        for key, value in values.items()
    ]
    return Batch(bytearray(encode_batch(records)), len(records), timestamp_ms)


async def read_records(ground: Ground, partition: TopicPartition) -> Held:
    bounds, held, offset = await bounds_of(ground, partition), Held(), 0
    while offset < bounds.end:
        for part in await ground.log.fetch(
            {partition: offset}, limit=AT_ONCE, isolation=Isolation.COMMITTED
        ):
            offset = part.next_offset
            for batch in iterate_batches(part.data):
                for record in decode_batch(batch)[1]:
                    value = None if record.value is None else record.value.decode()
                    held.append((record.offset, (record.key or b"").decode(), value))
    return held


async def bounds_of(ground: Ground, partition: TopicPartition) -> Bounds:
    return (await ground.log.bounds([partition]))[partition]


async def read_until(
    ground: Ground, partition: TopicPartition, is_reached: Callable[[Held], bool]
) -> Held:
    """Compaction comes in its own time."""
    for _ in range(600):
        held = await read_records(ground, partition)
        if is_reached(held):
            return held
        await asyncio.sleep(0.05)
    raise AssertionError(f"compaction never comes this far: {held}")


@pytest.mark.slow
async def test_the_newest_record_of_every_key_is_kept_where_it_was(ground: Ground) -> None:
    partition = await compacted_topic(ground)
    for number in range(4):
        await ground.log.append(partition, round_of(number, a=f"a{number}", b=f"b{number}"))
    await ground.log.append(partition, round_of(5, c="c5"))

    held = await read_until(ground, partition, lambda held: len(held) == 3)
    bounds = await bounds_of(ground, partition)

    assert held == [(6, "a", "a3"), (7, "b", "b3"), (8, "c", "c5")]
    assert (bounds.start, bounds.end) == (0, 9)
    if ground.kind == "apache kafka":
        assert (bounds.cleaned_to, bounds.deletes_dropped_to) == (-1, -1)
    else:
        assert 6 < bounds.cleaned_to <= 8
        assert bounds.deletes_dropped_to == 0


@pytest.mark.slow
async def test_tombstones_go_after_their_time_and_the_log_says_so(ground: Ground) -> None:
    partition = await compacted_topic(ground, delete_retention_ms="0")
    await ground.log.append(partition, round_of(0, a="a0", b="b0"))
    await ground.log.append(partition, round_of(1, a=None))
    await ground.log.append(partition, round_of(2, b="b2"))

    for number in range(3, 300):  # a log that rests is not compacted again
        await ground.log.append(partition, round_of(number, c=f"c{number}"))
        held = await read_records(ground, partition)
        if "a" not in {key for _, key, _ in held}:
            break
        await asyncio.sleep(0.05)
    bounds = await bounds_of(ground, partition)

    assert [key for _, key, _ in held if key != "c"] == ["b"]
    if ground.kind != "apache kafka":
        assert bounds.deletes_dropped_to > 2


@pytest.mark.slow
async def test_an_open_transaction_is_not_compacted(ground: Ground) -> None:
    partition = await compacted_topic(ground)
    writer = await ground.log.writer(ground.name("writer"))
    for number in range(3):
        await ground.log.append(partition, round_of(number, a=f"a{number}"))

    async with writer.transaction() as transaction:
        await transaction.append(partition, round_of(3, a="undecided"))
        await ground.log.append(partition, round_of(4, b="b4"))
        await ground.log.append(partition, round_of(5, b="b5"))
        bounds = await bounds_of(ground, partition)
        assert bounds.stable == 3
        for _ in range(4):
            await asyncio.sleep(0.05)
            assert (await bounds_of(ground, partition)).cleaned_to <= bounds.stable

    await ground.log.append(partition, round_of(7, c="c7"))
    held = await read_until(ground, partition, lambda held: len(held) == 3)
    assert [value for _, _, value in held] == ["undecided", "b5", "c7"]
