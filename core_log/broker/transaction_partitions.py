"""The partitions of transactions, as their coordinator reaches them."""

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

from headwater.core_log.broker.transaction_markers import (
    OnEnded,
    TransactionMarker,
    TransactionMarkers,
)
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

INTERNAL = "__"
"""Prefixes of topics that users do not read: the broker's own, and those of pipelines."""


class ReachedPartitions:
    """Syncs partitions in parallel, and writes the markers that end a transaction in them: unsynced
    in a log with short cuts, where all are led here, and else wherever they are led."""

    def __init__(self, broker: "Broker", markers: TransactionMarkers, on_ended: OnEnded) -> None:
        self._broker, self._markers, self._on_ended = broker, markers, on_ended

    @property
    def has_short_cuts(self) -> bool:
        return self._broker.has_short_cuts

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        led = {each: self._broker.partition(*each) for each in sorted(partitions)}
        elsewhere = [
            each
            for each, partition in led.items()
            if partition is None and self._broker.why_not_led(*each) not in DELETED
        ]
        if elsewhere and self.has_short_cuts:
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
        version: int,
        partitions: Collection[TopicPartition],
    ) -> Collection[TopicPartition]:
        if not self.has_short_cuts:
            marker = TransactionMarker(
                producer_id, producer_epoch, commit, coordinator_epoch, version
            )
            return await self._markers.write(marker, partitions)
        left = []
        for each in sorted(partitions, key=_by_who_waits):
            partition = self._broker.partition(*each)
            if partition is None:
                if self._broker.why_not_led(*each) not in DELETED:
                    left.append(each)
                continue
            try:
                partition.append_marker(
                    producer_id,
                    producer_epoch,
                    commit=commit,
                    coordinator_epoch=coordinator_epoch,
                    now_ms=self._broker.clock.now_ms(),
                )
            except HeadwaterError:
                left.append(each)
                continue
            self._on_ended(partition, producer_id, commit)
        return left


def _by_who_waits(partition: TopicPartition) -> tuple[bool, TopicPartition]:
    """Sorts topics of users before internal topics."""
    return partition.topic.startswith(INTERNAL), partition


class _Countdown:
    """Waits for several calls without a task for each."""

    def __init__(self, count: int) -> None:
        self._left, self._is_over = count, asyncio.Event()

    def one_more(self) -> None:
        self._left -= 1
        if not self._left:
            self._is_over.set()

    async def count_down(self) -> None:
        if self._left:
            await self._is_over.wait()
