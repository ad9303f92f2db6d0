"""Truncates in topics with several partitions, which must apply them together."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.records.compression import (
    Buffer,
    declared_bytes,
    decompress,
    decompress_into,
)
from headwater.core_log.records.record_codec import (
    UNREADABLE,
    encode_varint,
    find_unreadable,
    iterate_batches,
)
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.records.record_views import RecordScratch
from headwater.core_log.rows.codec import OPERATION_HEADER, TRUNCATE_KEY
from headwater.pipelines.loops.deliver.offset_check import check_reached

KEY = pa.scalar(TRUNCATE_KEY, pa.binary())

Barrier = Mapping[TopicPartition, int]
"""One truncate: the offset of its marker in every partition."""


@dataclass(frozen=True, slots=True)
class TruncateRange:
    start: int
    end: int


async def find_barriers(
    log: Log, ranges: Mapping[TopicPartition, TruncateRange]
) -> Sequence[Barrier]:
    """Returns the truncates in the partitions of one topic, oldest first.

    A truncate has a marker in every partition. If the partitions were read one by one and every
    marker applied, the second marker would remove rows that came after the first.

    Compaction can remove older markers from some partitions, never the newest, so they are matched
    from the end. A marker without a match is followed by one with a match.
    """
    markers = {partition: await _markers(log, partition, ranges[partition]) for partition in ranges}
    count = min(len(found) for found in markers.values())
    return [
        {partition: found[len(found) - count + number] for partition, found in markers.items()}
        for number in range(count)
    ]


async def _markers(log: Log, partition: TopicPartition, offset_range: TruncateRange) -> list[int]:
    found = list[int]()
    searched = batches_with(
        log, partition, [TRUNCATE_KEY], start=offset_range.start, end=offset_range.end
    )
    async with aclosing(searched) as batches:
        async for batch in batches:
            columns = arrow_codec.decode(batch, from_offset=offset_range.start, partition=partition)
            places = np.flatnonzero(np.asarray(pc.equal(columns.keys, KEY).fill_null(False)))
            for place in places.tolist():
                at = int(columns.offsets[place])
                operation = header_column(columns.headers[place : place + 1], OPERATION_HEADER)
                if at < offset_range.end and operation[0].as_py() == b"truncate":
                    found.append(at)
    return found


LIMIT = FetchLimit(bytes_max=4 << 20)
"""Fetch limit: larger answers would use memory that the system allocates anew for each."""
THREADS = 2
"""Threads: decompression and search release the interpreter lock."""


async def batches_with(
    log: Log, partition: TopicPartition, keys: Collection[bytes], *, start: int, end: int
) -> AsyncGenerator[memoryview, None]:
    """Yields whole batches in order, of which a few only contain the bytes of a key elsewhere."""
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
                        offset = end  # compaction has removed all that was left
                        break
                    bound = (await log.bounds([partition]))[partition]
                    check_reached(partition, end, bound)
                    decided = bound.stable
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
        raise find_unreadable(error, fetched.data, _content, fetched.partition) from error


def _content(batch: memoryview) -> Buffer:
    """Returns a buffer that is valid until the next call in the same thread."""
    compression, section = BatchHeader.read(batch).compression, batch[HEADER_BYTES:]
    size = declared_bytes(compression, section)
    if size is not None:
        room = _MEMORY.scratch.room(size).data[:size]
        if decompress_into(compression, section, room):
            return room
    return decompress(compression, section)


class _Memory(threading.local):
    def __init__(self) -> None:
        self.scratch = RecordScratch()


_MEMORY = _Memory()


def _holds(content: Buffer, patterns: Sequence[str]) -> bool:
    """Searches by Arrow, which does not need the interpreter."""
    bounds = pa.py_buffer(np.array([0, len(content)], np.int32))
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, bounds, pa.py_buffer(content)])
    return any(pc.match_substring_regex(whole, pattern)[0].as_py() for pattern in patterns)


def _pattern(needle: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in needle)
