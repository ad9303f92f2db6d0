"""Batches of the log in which a key may stand, found by bytes: no record is taken apart."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.compression import (
    Buffer,
    declared_bytes,
    decompress,
    decompress_into,
)
from headwater.core_log.records.record_codec import encode_varint, iterate_batches
from headwater.core_log.records.record_views import RecordScratch
from headwater.core_log.records.unreadable_batch import UNREADABLE, found_unreadable
from headwater.pipelines.loops.deliver.offset_check import check_reached

LIMIT = FetchLimit(bytes_max=4 << 20)
"""Larger answers would lie in memory that the system makes anew for each, page by page."""
THREADS = 2
"""Decompressing and searching let go of the interpreter."""


async def batches_with(
    log: Log, partition: TopicPartition, keys: Collection[bytes], *, start: int, end: int
) -> AsyncGenerator[memoryview, None]:
    """In their order, whole; in a few a value only looks like one of the keys."""
    patterns = [_pattern(encode_varint(len(key)) + key) for key in keys]
    loop, waiting = asyncio.get_running_loop(), deque[asyncio.Future[list[memoryview]]]()
    offset, decided = start, 0
    with ThreadPoolExecutor(THREADS, thread_name_prefix="search") as threads:
        while offset < end or waiting:
            while offset < end and len(waiting) < 2 * THREADS:
                wanted = {partition: offset}
                fetched = await log.fetch(wanted, limit=LIMIT, isolation=Isolation.COMMITTED)
                if not fetched:
                    if decided >= end:  # before it was fetched
                        offset = end  # compaction has taken all that was left
                        break
                    held = (await log.bounds([partition]))[partition]
                    check_reached(partition, end, held)
                    decided = held.stable
                    continue
                offset = fetched[0].next_offset
                search = partial(_find, fetched[0], patterns)
                waiting.append(loop.run_in_executor(threads, search))
            for batch in await waiting.popleft() if waiting else ():
                yield batch


def _find(fetched: Fetched, patterns: Sequence[str]) -> list[memoryview]:
    try:
        batches = iterate_batches(fetched.data)
        return [batch for batch in batches if _holds(_content(batch), patterns)]
    except UNREADABLE as error:
        raise found_unreadable(error, fetched.data, _content, fetched.partition) from error


def _content(batch: memoryview) -> Buffer:
    """Good until the next one is asked for in the same thread."""
    compression, section = BatchHeader.read(batch).compression, batch[HEADER_BYTES:]
    size = declared_bytes(compression, section)
    if size is not None:
        room = _MEMORY.scratch.room(size).data[:size]
        if decompress_into(compression, section, room):
            return room
    return decompress(compression, section)


class _Memory(threading.local):
    """Of each thread its own."""

    def __init__(self) -> None:
        self.scratch = RecordScratch()


_MEMORY = _Memory()


def _holds(content: Buffer, patterns: Sequence[str]) -> bool:
    """By Arrow, whose search of text needs no interpreter."""
    bounds = pa.py_buffer(np.array([0, len(content)], np.int32))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(content)])
    return any(pc.match_substring_regex(whole, pattern)[0].as_py() for pattern in patterns)


def _pattern(needle: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in needle)
