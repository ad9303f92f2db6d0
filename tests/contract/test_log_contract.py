"""A log keeps every acknowledged batch as it was written, in order, and hands out whole batches."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import (
    BatchTooLarge,
    ConfigError,
    LogRejected,
    PositionLost,
)
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.record_codec import iterate_batches
from tests.contract.conftest import Ground
from tests.contract.records import (
    AT_ONCE,
    PATIENT,
    batch_of,
    read_all,
    read_to,
    values_in,
)


async def test_offsets_count_on_from_batch_to_batch(ground: Ground) -> None:
    (partition,) = await ground.topic()

    first = await ground.log.append(partition, batch_of("a", "b"))
    second = await ground.log.append(partition, batch_of("c"))

    assert (first, second) == (0, 2)
    assert await read_all(ground.log, partition) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "compression", [0, 1, 2, 3, 4], ids=["none", "gzip", "snappy", "lz4", "zstd"]
)
async def test_a_batch_comes_back_byte_for_byte(ground: Ground, compression: int) -> None:
    (partition,) = await ground.topic()
    batch = batch_of("value", "x" * 1000, compression=compression)

    await ground.log.append(partition, batch)
    (fetched,) = await ground.log.fetch(
        {partition: 0}, limit=PATIENT, isolation=Isolation.COMMITTED
    )

    written, read = BatchHeader.read(batch.data), BatchHeader.read(fetched.data)
    assert read._replace(base_offset=0, leader_epoch=0) == written._replace(leader_epoch=0)
    assert fetched.data[HEADER_BYTES:] == batch.data[HEADER_BYTES:]


async def test_a_large_batch_comes_back_byte_for_byte(ground: Ground) -> None:
    (partition,) = await ground.topic()
    batch = batch_of("x" * 300_000, "y" * 150_000)

    await ground.log.append(partition, batch)
    (fetched,) = await ground.log.fetch(
        {partition: 0}, limit=PATIENT, isolation=Isolation.COMMITTED
    )

    assert fetched.data[HEADER_BYTES:] == batch.data[HEADER_BYTES:]


async def test_partitions_are_apart(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)

    await ground.log.append(zero, batch_of("zero"))
    await ground.log.append(one, batch_of("one"))

    assert await read_all(ground.log, zero) == ["zero"]
    assert await read_all(ground.log, one) == ["one"]


async def test_one_fetch_reads_many_partitions(ground: Ground) -> None:
    partitions = await ground.topic(partitions=4)
    for partition in partitions:
        await ground.log.append(partition, batch_of(f"in {partition.partition}"))

    fetched = await ground.log.fetch(
        dict.fromkeys(partitions, 0), limit=PATIENT, isolation=Isolation.COMMITTED
    )

    assert sorted(values_in(fetched)) == ["in 0", "in 1", "in 2", "in 3"]
    assert {part.next_offset for part in fetched} == {1}


async def test_partitions_without_news_are_left_out(ground: Ground) -> None:
    zero, one = await ground.topic(partitions=2)
    await ground.log.append(one, batch_of("a"))

    fetched = await ground.log.fetch(
        {zero: 0, one: 0}, limit=PATIENT, isolation=Isolation.COMMITTED
    )

    assert [part.partition for part in fetched] == [one]


async def test_reading_may_begin_inside_a_batch(ground: Ground) -> None:
    (partition,) = await ground.topic()
    await ground.log.append(partition, batch_of("a", "b", "c"))

    (fetched,) = await ground.log.fetch(
        {partition: 1}, limit=PATIENT, isolation=Isolation.COMMITTED
    )

    assert values_in([fetched]) == ["a", "b", "c"]  # the whole batch, from before the offset
    assert fetched.next_offset == 3


async def test_a_fetch_ends_with_a_whole_batch_near_its_limit(ground: Ground) -> None:
    (partition,) = await ground.topic()
    for number in range(20):
        await ground.log.append(partition, batch_of(f"{number}", "x" * 500))
    size = len(batch_of("19", "x" * 500).data)

    (fetched,) = await ground.log.fetch(
        {partition: 0},
        limit=FetchLimit(bytes_max=size * 5 + size // 2),
        isolation=Isolation.COMMITTED,
    )

    batches = list(iterate_batches(fetched.data))
    assert 1 <= len(batches) <= 5
    assert fetched.next_offset == 2 * len(batches)


async def test_a_batch_larger_than_the_limit_is_fetched_all_the_same(ground: Ground) -> None:
    (partition,) = await ground.topic()
    await ground.log.append(partition, batch_of("x" * 10_000))
    await ground.log.append(partition, batch_of("y"))

    values = await read_to(ground.log, partition, 2, limit=FetchLimit(bytes_max=100))

    assert values == ["x" * 10_000, "y"]


async def test_reading_on_under_a_small_limit_misses_nothing(ground: Ground) -> None:
    partitions = await ground.topic(partitions=3)
    for partition in partitions:
        for number in range(30):
            await ground.log.append(partition, batch_of(f"{partition.partition}:{number}"))

    wanted, values = dict.fromkeys(partitions, 0), list[str]()
    while any(offset < 30 for offset in wanted.values()):
        for part in await ground.log.fetch(
            wanted, limit=FetchLimit(bytes_max=500), isolation=Isolation.COMMITTED
        ):
            values += values_in([part])
            wanted[part.partition] = part.next_offset

    assert sorted(values) == sorted(f"{p}:{n}" for p in range(3) for n in range(30))


async def test_a_waiting_fetch_gets_what_is_appended_meanwhile(ground: Ground) -> None:
    (partition,) = await ground.topic()
    waiting = asyncio.ensure_future(
        ground.log.fetch({partition: 0}, limit=PATIENT, isolation=Isolation.COMMITTED)
    )
    await asyncio.sleep(0)

    await ground.log.append(partition, batch_of("news"))

    assert values_in(await waiting) == ["news"]


async def test_a_waiting_fetch_holds_up_nothing_else(ground: Ground) -> None:
    (partition,) = await ground.topic()
    polls = [
        asyncio.ensure_future(
            ground.log.fetch({partition: 0}, limit=PATIENT, isolation=Isolation.COMMITTED)
        )
        for _ in range(3)
    ]
    await asyncio.sleep(0)

    bounds = await ground.log.bounds([partition])
    await ground.log.append(partition, batch_of("news"))

    assert bounds[partition].end == 0
    assert [values_in(await poll) for poll in polls] == [["news"]] * 3


async def test_a_fetch_at_the_end_comes_back_empty_after_its_wait(ground: Ground) -> None:
    (partition,) = await ground.topic()
    await ground.log.append(partition, batch_of("a"))

    fetched = await ground.log.fetch(
        {partition: 1}, limit=FetchLimit(wait_ms_max=20), isolation=Isolation.COMMITTED
    )

    assert list(fetched) == []


async def test_an_abandoned_fetch_leaves_the_log_usable(ground: Ground) -> None:
    (partition,) = await ground.topic()
    waiting = asyncio.ensure_future(
        ground.log.fetch({partition: 0}, limit=PATIENT, isolation=Isolation.COMMITTED)
    )
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await ground.log.append(partition, batch_of("a"))

    assert await read_all(ground.log, partition) == ["a"]


async def test_a_fetch_waits_for_as_many_bytes_as_it_wants(ground: Ground) -> None:
    (partition,) = await ground.topic()
    size = len(batch_of("a").data)
    waiting = asyncio.ensure_future(
        ground.log.fetch(
            {partition: 0},
            limit=FetchLimit(bytes_min=2 * size, wait_ms_max=10_000),
            isolation=Isolation.COMMITTED,
        )
    )

    await ground.log.append(partition, batch_of("a"))
    await ground.log.append(partition, batch_of("b"))

    assert values_in(await waiting) == ["a", "b"]


async def test_a_reader_ahead_of_the_log_has_lost_its_position(ground: Ground) -> None:
    (partition,) = await ground.topic()
    await ground.log.append(partition, batch_of("a"))

    with pytest.raises(PositionLost, match="ahead of the log"):
        await ground.log.fetch({partition: 5}, limit=AT_ONCE, isolation=Isolation.COMMITTED)


async def test_a_reader_of_what_is_no_longer_kept_has_lost_its_position(ground: Ground) -> None:
    (partition,) = await ground.topic()
    for value in "abc":
        await ground.log.append(partition, batch_of(value))
    await ground.client.topics.delete_records({partition: 2})

    with pytest.raises(PositionLost, match="no longer has"):
        await ground.log.fetch({partition: 1}, limit=AT_ONCE, isolation=Isolation.COMMITTED)

    assert (await ground.log.bounds([partition]))[partition].start == 2
    assert await read_all(ground.log, partition) == ["c"]


async def test_a_batch_larger_than_the_topic_takes_is_refused_and_leaves_no_trace(
    ground: Ground,
) -> None:
    (partition,) = await ground.topic(config={"max.message.bytes": "1000"})

    with pytest.raises(BatchTooLarge):
        await ground.log.append(partition, batch_of("x" * 2000))

    await ground.log.append(partition, batch_of("small"))
    assert await read_all(ground.log, partition) == ["small"]


@pytest.mark.slow
async def test_a_topic_that_is_not_there_is_said_to_be_missing(ground: Ground) -> None:
    missing = TopicPartition(ground.name("missing"), 0)

    with pytest.raises(LogRejected, match="does not exist"):
        await ground.log.append(missing, batch_of("a"))
    with pytest.raises(LogRejected, match="does not exist"):
        await ground.log.fetch({missing: 0}, limit=AT_ONCE, isolation=Isolation.COMMITTED)
    with pytest.raises(LogRejected, match="does not exist"):
        await ground.log.partition_count(missing.topic)


async def test_a_topic_is_made_once_and_checked_from_then_on(ground: Ground) -> None:
    settings = TopicSettings(
        name=ground.name("made"), partitions=3, config={"cleanup.policy": "compact,delete"}
    )

    await ground.log.ensure_topic(settings)
    await ground.log.ensure_topic(settings)
    await ground.log.ensure_topic(
        settings.model_copy(update={"config": {"cleanup.policy": "delete, compact"}})
    )

    assert await ground.log.partition_count(settings.name) == 3
    with pytest.raises(ConfigError, match="number of partitions"):
        await ground.log.ensure_topic(settings.model_copy(update={"partitions": 2}))
    with pytest.raises(ConfigError, match="another configuration"):
        await ground.log.ensure_topic(
            settings.model_copy(update={"config": {"cleanup.policy": "delete"}})
        )


async def test_a_topic_that_cannot_be_is_refused_in_words(ground: Ground) -> None:
    settings = TopicSettings(name=ground.name("never"), config={"cleanup.policy": "nonsense"})

    with pytest.raises(LogRejected, match=r"cleanup\.policy"):
        await ground.log.ensure_topic(settings)


async def test_records_of_one_client_are_read_by_another(ground: Ground) -> None:
    (partition,) = await ground.topic()

    await ground.log.append(partition, batch_of("from the log under test"))
    await ground.connect().append(partition, batch_of("from a second client"))

    assert await read_all(ground.log, partition) == [
        "from the log under test",
        "from a second client",
    ]


async def test_nothing_is_read_that_lies_beyond_the_end(ground: Ground) -> None:
    """With many writers at once, a reader is never ahead of what the log calls its end."""
    (partition,) = await ground.topic()
    appends = asyncio.gather(
        *(ground.log.append(partition, batch_of(f"{number}")) for number in range(40))
    )

    offset, seen = 0, list[str]()
    while offset < 40:
        for part in await ground.log.fetch(
            {partition: offset}, limit=PATIENT, isolation=Isolation.UNCOMMITTED
        ):
            offset = part.next_offset
            seen += values_in([part])
            assert offset <= (await ground.log.bounds([partition]))[partition].end

    offsets = await appends
    assert [value for _, value in sorted(zip(offsets, map(str, range(40)), strict=True))] == seen
