"""The partitions that transactions write to, as this broker leads them."""

import asyncio
from collections.abc import Callable, Collection

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

INTERNAL = "__"
"""How topics begin that no user reads: the broker's own, and what pipelines keep for themselves."""

OnEnded = Callable[[Partition, int, bool], None]
"""Told of every marker: the partition it is in, the producer, and whether it commits."""


class LedTransactionPartitions:
    """Syncs them side by side, and writes the markers that end a transaction in them."""

    def __init__(
        self,
        led: Callable[[str, int], Partition | None],
        why_not_led: Callable[[str, int], ErrorCode],
        clock: Clock,
        on_ended: OnEnded,
    ) -> None:
        self._led, self._why_not_led = led, why_not_led
        self._clock, self._on_ended = clock, on_ended

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        led = {each: self._led(*each) for each in partitions}
        elsewhere = [
            each
            for each, partition in led.items()
            if partition is None and self._why_not_led(*each) not in DELETED
        ]
        if elsewhere:
            raise LogUnavailable("partitions are not led here", partitions=elsewhere)
        here = [partition for partition in led.values() if partition is not None]
        all_of_them = _Countdown(len(here))
        for partition in here:
            partition.when_synced(partition.log.end_offset, all_of_them.one_more)
        await all_of_them.count_down()
        for partition in here:
            partition.check_synced()

    async def write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> Collection[TopicPartition]:
        left = []
        for each in sorted(partitions, key=_by_who_waits):
            partition = self._led(*each)
            if partition is None:
                if self._why_not_led(*each) not in DELETED:
                    left.append(each)
                continue
            try:
                partition.append_marker(
                    producer_id,
                    producer_epoch,
                    commit=commit,
                    coordinator_epoch=coordinator_epoch,
                    now_ms=self._clock.now_ms(),
                )
            except HeadwaterError:
                left.append(each)
                continue
            self._on_ended(partition, producer_id, commit)
        return left


def _by_who_waits(partition: TopicPartition) -> tuple[bool, TopicPartition]:
    """Topics of users before those that only tell of them."""
    return partition.topic.startswith(INTERNAL), partition


class _Countdown:
    """Waits for several calls, without a task for each."""

    def __init__(self, count: int) -> None:
        self._left, self._is_over = count, asyncio.Event()

    def one_more(self) -> None:
        self._left -= 1
        if not self._left:
            self._is_over.set()

    async def count_down(self) -> None:
        if self._left:
            await self._is_over.wait()
