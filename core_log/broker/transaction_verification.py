"""Whether a batch may start its producer's transaction in a partition: its coordinator says so."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.broker.partition import Partition
from headwater.core_log.broker.peers import RequestBatches
from headwater.core_log.broker.transaction_markers import COMMIT_WAIT_MS_MAX
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.groups.group_coordinator import partition_of
from headwater.core_log.model.log import TopicPartition, indexes_by_topic
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.replication.metadata import NO_LEADER, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ABORTABLE_FROM = 11
IMPLICIT_ADD_FROM = 12
"""From this version on, a transactional batch adds its partition to the transaction (KIP-890)."""

Verdicts = Mapping[int, ErrorCode]
"""By index, the verdict about each batch that was asked about."""

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


class UnmarkedSince(NamedTuple):
    """A producer in a partition when its coordinator was asked. The answer counts only if the same
    leader, in the same epoch, has written no marker of the producer meanwhile: the transaction that
    the answer is about may have ended."""

    partition: Partition
    producer_id: int
    leader_epoch: int
    marker_offset: int

    @classmethod
    def now(cls, partition: Partition, producer_id: int) -> "UnmarkedSince":
        return cls(
            partition, producer_id, partition.leader_epoch, _marker_of(partition, producer_id)
        )

    def holds(self, partition: Partition | None) -> bool:
        return partition is not None and self == UnmarkedSince.now(partition, self.producer_id)


def _marker_of(partition: Partition, producer_id: int) -> int:
    producer = partition.log.producers.get(producer_id)
    return -1 if producer is None else producer.marker_offset


class TransactionVerifier:
    """Asks the coordinator of a transactional id, on whichever broker it is."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._batches = RequestBatches(self._send)

    async def verify_or_add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        may_add: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Returns for each partition whether the producer's transaction may be written there; adds
        it to the transaction if that is allowed."""
        leader = self._coordinator_of(transactional_id)
        if leader == self._broker.node_id:
            return await self._broker.transactions.verify_or_add(
                transactional_id, producer_id, producer_epoch, partitions, may_add=may_add
            )
        if leader == NO_LEADER:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        part = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not may_add,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in indexes_by_topic(partitions).items()
            ],
        )
        try:
            result = await self._batches.ask(leader, part)
        except HeadwaterError:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        told = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        return {at: told.get(at, ErrorCode.COORDINATOR_NOT_AVAILABLE) for at in partitions}

    def _coordinator_of(self, transactional_id: str) -> int:
        topic = self._broker.image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            return self._broker.node_id  # which answers that it is no coordinator
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader

    async def _send(
        self, coordinator: int, transactions: Sequence[AddPartitionsToTxnTransaction]
    ) -> Sequence[AddPartitionsToTxnResult]:
        request = AddPartitionsToTxnRequest(transactions=transactions)
        assert self._broker.peers is not None, "a cluster has other brokers"
        answer = await self._broker.peers.poll(coordinator, request, wait_ms=COMMIT_WAIT_MS_MAX)
        if len(answer.results_by_transaction) != len(transactions):
            raise LogUnavailable(
                "the coordinator has answered for other transactions than were asked",
                node_id=coordinator,
            )
        return answer.results_by_transaction

    async def close(self) -> None:
        await self._batches.close()


class Verification:
    """Asks the coordinator first, so that no batch joins a transaction that has ended."""

    def __init__(
        self,
        broker: "Broker",
        transactional_id: str,
        opening: Mapping[int, tuple[TopicPartition, BatchHeader]],
        version: int,
    ) -> None:
        """`opening`: by index, each batch that would start its producer's transaction."""
        self._broker, self._transactional_id = broker, transactional_id
        self.opening, self._version = opening, version
        _, first = next(iter(opening.values()))
        self._producer = (first.producer_id, first.producer_epoch)
        self._partitions = [at for at, _ in opening.values()]
        self._may_add = version >= IMPLICIT_ADD_FROM

    def at_once(self) -> Verdicts | None:
        """Returns the verdicts; None if the coordinator must store something first, or be asked
        elsewhere."""
        found = self._broker.transactions.verify_or_add_at_once(
            self._transactional_id, *self._producer, self._partitions, may_add=self._may_add
        )
        return None if found is None else self._verdicts(found)

    async def answer(self) -> Verdicts:
        """Returns the same; the caller appends before it awaits anything else."""
        since = {
            at: UnmarkedSince.now(partition, self._producer[0])
            for at in self._partitions
            if (partition := self._broker.find_led(*at)) is not None
        }
        found = await self._broker.verifier.verify_or_add(
            self._transactional_id, *self._producer, self._partitions, may_add=self._may_add
        )
        overtaken = {
            at: ErrorCode.NOT_ENOUGH_REPLICAS
            for at, each in since.items()
            if not each.holds(self._broker.find_led(*at))
        }
        return self._verdicts({**found, **overtaken})

    def _verdicts(self, answer: Mapping[TopicPartition, ErrorCode]) -> Verdicts:
        verdicts = {}
        for index, (at, header) in self.opening.items():
            is_same = (header.producer_id, header.producer_epoch) == self._producer
            verdict = answer[at] if is_same else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            verdicts[index] = in_words_of(verdict, self._version)
        return verdicts
