"""New messages of a topic as they come: so many of each second as a person can see, the rest
counted."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.console.message_search import MessageFilter, matching
from headwater.pipelines.console.shown_records import RecordReader, ShownRecord
from headwater.pipelines.watching.http_routes import TooLarge

SHOWN_MAX, INTERVAL_S = 50, 1.0
BEHIND_MAX = 5_000
"""Offsets of a partition that are read in one interval; older ones are only counted."""
WAIT = FetchLimit(bytes_max=4 << 20, wait_ms_max=1_000)
TAILS_MAX = 32


@dataclass(frozen=True, slots=True)
class TailedMessages:
    """What came in one moment."""

    messages: list[ShownRecord]
    """The newest of them, newest first."""
    not_shown: int


class MessageTail:
    """Follows partitions from their end."""

    def __init__(self, log: Log, reader: RecordReader, wanted: MessageFilter) -> None:
        self._log, self._reader, self._wanted = log, reader, wanted

    async def follow(self, places: Sequence[TopicPartition]) -> AsyncIterator[TailedMessages]:
        """Runs until nobody listens. A quiet moment is yielded as well, at first the one in which
        the end is known."""
        offsets = {at: found.stable for at, found in (await self._log.bounds(places)).items()}
        yield TailedMessages([], 0)
        while True:
            began, found, passed = time.monotonic(), list[ShownRecord](), 0
            for each in await self._log.fetch(offsets, limit=WAIT, isolation=Isolation.COMMITTED):
                at = each.partition
                columns = arrow_codec.decode(each.data, from_offset=offsets[at], partition=at)
                found += await matching(self._reader, self._wanted, at, columns)
                offsets[at] = each.next_offset
            for at, bounds in (await self._log.bounds(places)).items():
                if bounds.stable - offsets[at] > BEHIND_MAX:
                    passed += bounds.stable - BEHIND_MAX - offsets[at]
                    offsets[at] = bounds.stable - BEHIND_MAX
            found.sort(key=lambda record: (record.appended_ms, record.offset), reverse=True)
            yield TailedMessages(found[:SHOWN_MAX], max(len(found) - SHOWN_MAX, 0) + passed)
            await asyncio.sleep(max(began + INTERVAL_S - time.monotonic(), 0))


class TailCount:
    """How many pages follow a topic now."""

    def __init__(self) -> None:
        self._count = 0

    def check(self) -> None:
        if self._count >= TAILS_MAX:
            raise TooLarge("too many pages follow topics", hint="close one of them")

    @contextmanager
    def count_one(self) -> Iterator[None]:
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
