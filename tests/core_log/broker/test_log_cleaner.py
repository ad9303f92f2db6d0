"""A broker compacts by itself what is due, and says from where on history is whole."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.crash.plain_client import Wire

pytestmark = pytest.mark.slow

TABLE = TopicPartition("table", 0)
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}


def keyed(key: bytes, value: bytes | None) -> Batch:
    return Batch(encode_batch([PlainRecord(key, value, timestamp_ms=1_700_000_000_000)]), 1)


async def fold(log: EmbeddedLog) -> tuple[int, dict[bytes, bytes]]:
    """How many records there are, and the newest value of every key."""
    bounds = (await log.bounds([TABLE]))[TABLE]
    offset, count, table = bounds.start, 0, dict[bytes, bytes]()
    while offset < bounds.stable:
        for fetched in await log.fetch(
            {TABLE: offset}, limit=FetchLimit(), isolation=Isolation.COMMITTED
        ):
            for batch in iterate_batches(fetched.data):
                for record in decode_batch(batch)[1]:
                    count += 1
                    assert record.key is not None
                    if record.value is None:
                        table.pop(record.key, None)
                    else:
                        table[record.key] = record.value
            offset = fetched.next_offset
    return count, table


async def test_a_compacted_topic_keeps_the_table_and_forgets_the_rest(tmp_path: Path) -> None:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="table", config=COMPACTED))
    writer = await log.writer("writer")
    for number in range(300):
        key = b"key-%d" % (number % 7)
        await writer.append(TABLE, keyed(key, b"value-%d" % number))
    await writer.append(TABLE, keyed(b"key-3", None))
    before = await fold(log)

    cleaner = log.running.housekeeping.cleaner
    await cleaner.clean_what_is_due(log.running.broker.clock.now_ms())
    after = await fold(log)
    bounds = (await log.bounds([TABLE]))[TABLE]

    assert before[0] == 301
    assert after[0] < 60
    assert after[1] == before[1]
    assert 0 < bounds.cleaned_to <= bounds.end
    await log.close()

    reopened = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    assert await fold(reopened) == after
    assert (await reopened.bounds([TABLE]))[TABLE].cleaned_to == bounds.cleaned_to
    await reopened.close()


async def test_two_who_want_it_compacted_at_once_do_not_write_over_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="table", config=COMPACTED))
    writer = await log.writer("writer")
    for number in range(100):
        await writer.append(TABLE, keyed(b"key-%d" % number, b"value"))
    before = await fold(log)

    cleaner, now_ms = log.running.housekeeping.cleaner, log.running.broker.clock.now_ms()
    await asyncio.gather(cleaner.clean_what_is_due(now_ms), cleaner.clean_what_is_due(now_ms))
    after = await fold(log)
    await log.close()

    assert after == before
    assert "was not compacted" not in caplog.text


async def cleaned_segments(tmp_path: Path) -> EmbeddedLog:
    """Many, each cleaned by itself, and hardly anything left in them."""
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0"))
    await log.ensure_topic(TopicSettings(name="table", config=COMPACTED))
    for number in range(1_000):
        await log.append(TABLE, keyed(b"key-%d" % (number % 7), b"value-%d" % number))
    await log.topics.alter("table", set_to={"segment.bytes": "100"})  # so that none are joined
    await log.running.housekeeping.cleaner.clean_what_is_due(log.running.broker.clock.now_ms())
    return log


async def test_records_left_by_compaction_of_many_segments_are_read_without_empty_answers(
    tmp_path: Path,
) -> None:
    log = await cleaned_segments(tmp_path)
    partition = log.running.broker.find_led("table", 0)
    assert partition is not None and len(partition.log.segments) > 30

    def answers() -> list[int]:
        counts, offset = [], 0
        with Wire(log.running.server.address) as wire:
            while offset < partition.high_watermark:
                read = wire.fetch("table", {0: offset}, committed=True)[0]
                offset = read.batches[-1].next_offset
                counts.append(sum(len(each.records) for each in read.batches))
        return counts

    counts = await asyncio.to_thread(answers)

    assert all(counts) and len(counts) < 4
    await log.close()


@pytest.mark.compat
async def test_librdkafka_reads_what_compaction_leaves_of_many_segments(tmp_path: Path) -> None:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as At

    log = await cleaned_segments(tmp_path)
    left, table = await fold(log)
    host, port = log.running.server.address

    def consume() -> list[object]:
        consumer = Consumer({"bootstrap.servers": f"{host}:{port}", "group.id": "g"})
        consumer.assign([At("table", 0, 0)])
        try:
            return [each.error() or each.key() for each in consumer.consume(left, timeout=30)]
        finally:
            consumer.close()

    read = await asyncio.to_thread(consume)

    assert len(read) == left and set(read) == set(table)
    await log.close()
