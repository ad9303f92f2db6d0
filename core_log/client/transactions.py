"""Requests of a transactional writer to its coordinator."""

from headwater.core_log.client.coordinators import Coordinates, Coordinators
from headwater.core_log.client.producer import ProducerIdAndEpoch
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.model.log import Offsets, TopicPartition
from headwater.core_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headwater.core_log.protocol.messages.end_txn import EndTxnRequest
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.core_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
WITHOUT_TWO_PHASE_COMMIT = 5  # of InitProducerId
FOR_CLIENTS = 3  # of AddPartitionsToTxn; from version 4 on it is spoken between brokers
WITHOUT_NEW_EPOCH = 4  # of EndTxn and TxnOffsetCommit: transaction.version 1


class CoordinatorClient:
    """A client of a transaction coordinator. In version 2 (KIP-890) each end gives a new epoch, and
    partitions are added implicitly; in version 1 partitions and groups are announced, and the
    epoch stays."""

    def __init__(
        self,
        coordinators: Coordinators,
        name: str,
        settings: KafkaSettings,
        *,
        renews_epochs: bool,
    ) -> None:
        self._coordinators, self._name, self._settings = coordinators, name, settings
        self.renews_epochs = renews_epochs

    async def identify(
        self, held: ProducerIdAndEpoch = NO_PRODUCER, *, for_ms: int | None = None
    ) -> ProducerIdAndEpoch:
        """Gets an id and epoch, and fences the former writer of the name, aborting its open
        transaction.

        A caller with a known id and epoch is refused if they are not the newest.
        """
        request = InitProducerIdRequest(
            transactional_id=self._name,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=held.producer_id,
            producer_epoch=held.epoch,
        )
        response = await self._coordinators.ask(
            Coordinates.TRANSACTION,
            self._name,
            request,
            codes=lambda response: [response.error_code],
            version_max=WITHOUT_TWO_PHASE_COMMIT,
            for_ms=for_ms,
        )
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add_partition(self, identity: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        topic = AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[topic],
        )
        await self._coordinators.ask(
            Coordinates.TRANSACTION,
            self._name,
            request,
            codes=lambda response: [
                part.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for part in topic.results_by_partition
            ],
            version_max=FOR_CLIENTS,
        )

    async def add_group(self, identity: ProducerIdAndEpoch, group: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group,
        )
        await self._coordinators.ask(
            Coordinates.TRANSACTION,
            self._name,
            request,
            codes=lambda response: [response.error_code],
        )

    async def commit_offsets(
        self, identity: ProducerIdAndEpoch, group: str, offsets: Offsets
    ) -> None:
        request = TxnOffsetCommitRequest(
            transactional_id=self._name,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=_topics_of(offsets),
        )
        await self._coordinators.ask(
            Coordinates.GROUP,
            group,
            request,
            codes=lambda response: [
                part.error_code for topic in response.topics for part in topic.partitions
            ],
            version_max=None if self.renews_epochs else WITHOUT_NEW_EPOCH,
        )

    async def end(
        self, identity: ProducerIdAndEpoch, *, commit: bool, for_ms: int | None = None
    ) -> ProducerIdAndEpoch:
        """Ends the transaction; returns the id and epoch for the next one."""
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )
        response = await self._coordinators.ask(
            Coordinates.TRANSACTION,
            self._name,
            request,
            codes=lambda response: [response.error_code],
            version_max=None if self.renews_epochs else WITHOUT_NEW_EPOCH,
            for_ms=for_ms,
        )
        if response.producer_id < 0:
            return identity
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def _topics_of(offsets: Offsets) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=p) for name, p in topics.items()]
