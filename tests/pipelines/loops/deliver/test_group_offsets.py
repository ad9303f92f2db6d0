"""The log hears in the end how far a sink is, and the sink goes on meanwhile."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.pipelines.loops.deliver.group_offsets import group_offsets

PLACE, OTHER = TopicPartition("shop.orders", 0), TopicPartition("shop.customers", 0)


class SlowLog:
    """Answers when it is let."""

    def __init__(self, *, fails: bool = False) -> None:
        self.told: list[Offsets] = []
        self.lets, self._fails = asyncio.Event(), fails

    async def commit_offsets(self, group: str, offsets: Offsets) -> None:
        await self.lets.wait()
        if self._fails:
            raise LogUnavailable("nobody there")
        self.told.append(dict(offsets))


def test_nobody_waits_and_only_the_newest_is_told() -> None:
    async def story() -> list[Offsets]:
        log = SlowLog()
        async with group_offsets(log, "g") as offsets:  # type: ignore[arg-type]
            await offsets.report({PLACE: 1})
            await asyncio.sleep(0)
            for number in (2, 3, 4):
                await offsets.report({PLACE: number, OTHER: number})
            assert not log.told
            log.lets.set()
        return log.told

    assert asyncio.run(story()) == [{PLACE: 1}, {PLACE: 4, OTHER: 4}]


def test_an_offset_is_not_committed_at_once_again_unless_somebody_waits_for_it() -> None:
    async def story() -> tuple[int, int]:
        log = SlowLog()
        log.lets.set()
        async with group_offsets(log, "g") as offsets:  # type: ignore[arg-type]
            for number in range(100):
                await offsets.report({PLACE: number})
                await asyncio.sleep(0)
            before = len(log.told)
            await offsets.wait_settled()
            assert log.told[-1] == {PLACE: 99}
            return before, len(log.told)

    assert asyncio.run(story()) == (1, 2)


def test_a_failure_is_raised_by_the_next_commit_and_at_the_end() -> None:
    async def story(*, again: bool) -> None:
        log = SlowLog(fails=True)
        log.lets.set()
        async with group_offsets(log, "g") as offsets:  # type: ignore[arg-type]
            await offsets.report({PLACE: 1})
            if again:
                await asyncio.sleep(0)
                await offsets.report({PLACE: 2})
                raise AssertionError("it went on")

    for again in (True, False):
        with pytest.raises(LogUnavailable):
            asyncio.run(story(again=again))


def test_another_failure_is_what_is_raised_and_what_was_begun_is_told() -> None:
    log = None

    async def story() -> None:
        nonlocal log
        log = SlowLog()
        async with group_offsets(log, "g") as offsets:  # type: ignore[arg-type]
            await offsets.report({PLACE: 1})
            log.lets.set()
            raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(story())
    assert log is not None and log.told == [{PLACE: 1}]
