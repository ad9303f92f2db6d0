"""A broker compacts by itself what is due, and says from where on history is whole."""

import asyncio
from pathlib import Path

import pytest

from core_log.batch import Batch
from core_log.embedded import EmbeddedLog
from core_log.log import FetchLimit, Isolation, TopicPartition
from core_log.plain_records import PlainRecord, decode_batch, encode_batch, iterate_batches
from core_log.settings import BrokerSettings, TopicSettings

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
