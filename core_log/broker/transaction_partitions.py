"""The partitions of transactions, as this broker leads them."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.produce_frames import ProduceFrame
from headwater.core_log.records.batch_header import BatchHeader

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

INTERNAL = "__"
"""Prefixes of topics that users do not read: the broker's own, and those of pipelines."""

OnEnded = Callable[[Partition, int, bool], None]
"""Called for every marker with its partition, the producer, and whether it commits."""


class LedTransactionPartitions:
    """Syncs partitions in parallel, and writes the markers that end a transaction in them."""

    def __init__(self, broker: "Broker", on_ended: OnEnded) -> None:
        self._broker, self._on_ended = broker, on_ended

    @property
    def has_short_cuts(self) -> bool:
        return self._broker.has_short_cuts

    async def sync(self, partitions: Collection[TopicPartition]) -> None:
        led = {each: self._broker.partition(*each) for each in partitions}
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


ABORTABLE_FROM = 11
IMPLICIT_ADD_FROM = 12
"""From this version on, a transactional batch adds its partition to the transaction (KIP-890)."""

NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def in_words_of(verdict: ErrorCode, version: int) -> ErrorCode:
    """Returns an error that clients of Produce know: for a temporary failure one that makes them
    send the batch again and do nothing else."""
    is_passing = verdict in NOT_NOW or (
        verdict is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_ADD_FROM
    )
    if is_passing:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if verdict is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return verdict


class Verification:
    """Asks the coordinator first, so that no batch joins a transaction that has ended."""

    def __init__(
        self,
        broker: "Broker",
        request: ProduceFrame,
        opening: Mapping[int, BatchHeader],
        version: int,
    ) -> None:
        """`opening`: by index, each batch that would start its producer's transaction."""
        self._request, self._opening, self._version = request, opening, version
        self._coordinator, parts = broker.transactions, request.parts
        first = next(iter(opening.values()))
        self._producer = (first.producer_id, first.producer_epoch)
        self._names = {
            index: TopicPartition(broker.topic_name(parts[index].topic), parts[index].partition)
            for index in opening
        }
        self._may_add = version >= IMPLICIT_ADD_FROM

    def at_once(self) -> list[ErrorCode] | None:
        """Returns the errors; None if the coordinator must store something first."""
        found = self._coordinator.verify_or_add_at_once(
            self._transactional_id, *self._producer, [*self._names.values()], may_add=self._may_add
        )
        return None if found is None else self._verdicts(found)

    async def answer(self) -> list[ErrorCode]:
        """Returns the errors; the caller appends before it awaits anything else."""
        return self._verdicts(
            await self._coordinator.verify_or_add(
                self._transactional_id,
                *self._producer,
                [*self._names.values()],
                may_add=self._may_add,
            )
        )

    @property
    def _transactional_id(self) -> str:
        name = self._request.transactional_id
        assert name is not None, "only transactions are verified"
        return name

    def _verdicts(self, answer: Mapping[TopicPartition, ErrorCode]) -> list[ErrorCode]:
        """Returns one error for each part of the request."""
        verdicts = [ErrorCode.NONE] * len(self._request.parts)
        for index, header in self._opening.items():
            is_same = (header.producer_id, header.producer_epoch) == self._producer
            verdict = answer[self._names[index]]
            verdict = verdict if is_same else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            verdicts[index] = in_words_of(verdict, self._version)
        return verdicts
