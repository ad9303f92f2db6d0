"""A partition is read to where it was written; what ages out meanwhile is passed over."""

from typing import Any

import pytest

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import Bounds, Fetched, TopicPartition
from headwater.pipelines.journal.internal_topics import read_decided
from tests.builders import batch

PLACE = TopicPartition("__headwater_commits", 0)


class AgingLog:
    """Its oldest records go between the look at its bounds and the first fetch."""

    def __init__(self, *, start: int) -> None:
        self.start = start
        self._asked = 0

    async def bounds(self, places: Any) -> dict[TopicPartition, Bounds]:
        self._asked += 1
        start = 0 if self._asked == 1 else self.start
        return dict.fromkeys(places, Bounds(start, 3, 3, -1, -1))

    async def fetch(self, wanted: Any, **_: Any) -> list[Fetched]:
        [offset] = wanted.values()
        if offset < self.start or self._asked > 5:
            raise PositionLost("the log no longer has that offset")
        data = batch(b"last", base_offset=2)
        return [Fetched(PLACE, memoryview(bytes(data)), 3)]


async def test_records_that_age_out_under_the_reader_are_passed_over() -> None:
    log: Any = AgingLog(start=2)

    values = [value async for part in read_decided(log, PLACE) for value in part.values.to_pylist()]

    assert values == [b"last"]


async def test_an_offset_that_is_lost_although_nothing_went_is_said() -> None:
    log: Any = AgingLog(start=0)
    log._asked = 9

    with pytest.raises(PositionLost):
        [part async for part in read_decided(log, PLACE)]
