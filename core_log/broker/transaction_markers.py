"""The partitions of transactions, and the markers that end them, which their leaders write."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.broker.forwarder import catch_up
from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.peers import RequestBatches
from headwater.core_log.foundation.errors import (
    Fenced,
    HeadwaterError,
    InvalidProducerEpoch,
    LogUnavailable,
)
from headwater.core_log.groups.transactions import VERSION_2
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.model.log import TopicPartition, indexes_by_topic
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headwater.core_log.replication.metadata import NO_LEADER, OFFSETS_TOPIC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

COMMIT_WAIT_MS_MAX = 30_000
"""How long another broker may take to commit markers, or a record of a transactional id."""

OnEnded = Callable[[Partition, int, bool], None]
"""Called for every marker with its partition, the producer, and whether it commits."""

Verdicts = Mapping[TopicPartition, ErrorCode]
DELETED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

INTERNAL = "__"
"""Prefixes of topics that users do not read: the broker's own, and those of pipelines."""


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction in some partition."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    version: int
    """The transaction.version of its client."""


class TransactionMarkers:
    """Writes markers in a cluster: each is answered once it is committed."""

    def __init__(self, broker: "Broker", on_ended: OnEnded) -> None:
        self._broker, self._on_ended = broker, on_ended
        self._batches = RequestBatches(self._send)

    async def write(
        self, marker: TransactionMarker, partitions: Iterable[TopicPartition]
    ) -> Collection[TopicPartition]:
        """Returns the partitions in which the marker may not be committed yet. A deleted partition
        needs none."""
        partitions = sorted(partitions)
        if any(self._broker.image.partition(*at) is None for at in partitions):
            try:  # a coordinator that is new here may not have heard of a partition yet
                await catch_up(self._broker)
            except (ConnectionLost, HeadwaterError):
                return partitions
        here, left = list[TopicPartition](), list[TopicPartition]()
        by_leader = defaultdict[int, list[TopicPartition]](list)
        for at in partitions:
            record = self._broker.image.partition(*at)
            if record is None:
                continue
            if record.leader == self._broker.node_id:
                here.append(at)
            elif record.leader == NO_LEADER:
                left.append(at)
            else:
                by_leader[record.leader].append(at)
        found = await asyncio.gather(
            *(self._write_led(marker, at) for at in here),
            *(self._ask(leader, marker, asked) for leader, asked in by_leader.items()),
        )
        for verdicts in found:
            left += [at for at, error in verdicts.items() if error is not ErrorCode.NONE]
        return left

    async def _write_led(self, marker: TransactionMarker, at: TopicPartition) -> Verdicts:
        return {at: await self.write_here(marker, at)}

    async def _ask(
        self, leader: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Verdicts:
        part = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in indexes_by_topic(partitions).items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.version,
        )
        try:
            result = await self._batches.ask(leader, part)
        except HeadwaterError:
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        told = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in result.topics
            for each in topic.partitions
        }
        return {at: told.get(at, ErrorCode.UNKNOWN_SERVER_ERROR) for at in partitions}

    async def _send(
        self, leader: int, markers: Sequence[WritableTxnMarker]
    ) -> Sequence[WritableTxnMarkerResult]:
        request = WriteTxnMarkersRequest(markers=markers)
        assert self._broker.peers is not None, "a cluster has other brokers"
        answer = await self._broker.peers.poll(leader, request, wait_ms=COMMIT_WAIT_MS_MAX)
        if len(answer.markers) != len(markers):
            raise LogUnavailable(
                "the leader has answered for other markers than were asked", node_id=leader
            )
        return answer.markers

    async def write_here(self, marker: TransactionMarker, at: TopicPartition) -> ErrorCode:
        """Writes a marker to a partition that this broker leads; returns once it is committed."""
        partition = self._broker.find_led(*at)
        if partition is None:
            return self._broker.why_not_led(*at)
        if at.topic == OFFSETS_TOPIC and not self._broker.groups.is_read(at.partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER  # the offsets would be committed unseen
        try:
            self._check(partition, marker)
            partition.log.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
                leader_epoch=partition.leader_epoch,
                now_ms=self._broker.clock.now_ms(),
            )
            end_offset = partition.log.end_offset
            partition.on_written(is_urgent=True)
            await partition.wait_committed(end_offset)
        except InvalidProducerEpoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        except Fenced:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        except LogUnavailable:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        except HeadwaterError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._on_ended(partition, marker.producer_id, marker.commit)
        return ErrorCode.NONE

    def _check(self, partition: Partition, marker: TransactionMarker) -> None:
        """Refuses a late marker. A client of version 2 has a new epoch in each transaction, and the
        marker has the next one, which its next transaction has, too."""
        producer = partition.log.producers.get(marker.producer_id)
        if producer is None or producer.transaction_from < 0 or marker.version < VERSION_2:
            return
        if marker.producer_epoch <= producer.epoch:
            raise InvalidProducerEpoch(
                "marker belongs to an earlier transaction", producer_id=marker.producer_id
            )

    async def close(self) -> None:
        await self._batches.close()


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
