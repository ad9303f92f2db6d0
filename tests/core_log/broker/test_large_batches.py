"""Large batches are checked one after the other, in memory that is used again."""

import asyncio

import pytest

from headwater.core_log.broker.batch_validation import InvalidRecord, Scratch, open_in_thread
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.compression import compress
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.storage.log_config import LogConfig
from tests.contract.records import NOW_MS
from tests.contract.test_batch_contents import ZSTD, said

CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}))
LONG = 3_000


def records(count: int) -> bytes:
    each = [PlainRecord(b"k", b"value", timestamp_ms=NOW_MS) for _ in range(count)]
    return bytes(encode_batch(each)[HEADER_BYTES:])


async def opened(scratch: Scratch, content: bytes, count: int) -> None:
    batch = memoryview(said(compress(ZSTD, content), count, ZSTD))
    await open_in_thread(CONFIG, BatchHeader.read(batch), batch, scratch)


async def test_records_of_the_batch_before_do_not_count() -> None:
    scratch = Scratch()
    await opened(scratch, records(LONG), LONG)

    with pytest.raises(InvalidRecord, match="contradicts its record count"):
        await opened(scratch, records(LONG)[: len(records(LONG - 1))], LONG)


async def test_memory_is_used_again() -> None:
    scratch = Scratch()
    await opened(scratch, records(LONG), LONG)
    memory = scratch.take()
    scratch.give_back(memory)

    await opened(scratch, records(LONG // 2), LONG // 2)

    assert scratch.take() is memory


async def test_memory_that_a_cancelled_check_may_still_fill_is_not_used_again() -> None:
    scratch = Scratch()
    await opened(scratch, records(LONG), LONG)
    check = asyncio.ensure_future(opened(scratch, records(LONG), LONG))
    await asyncio.sleep(0)

    check.cancel()
    await asyncio.wait([check])

    assert check.cancelled()
    assert not scratch.take()
