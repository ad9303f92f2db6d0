"""AddPartitionsToTxn (key 24), versions 0 to 5: a transaction announces its partitions.

Versions 4 and 5 carry several transactions, and can only verify (KIP-890). Brokers send them; newer
clients add a partition by writing to it. Deliberately not done: nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.groups.transactions import VERSION_1, VERSION_2, ProducerIdentity
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

FENCED_FROM = 2
SEVERAL_FROM = 4


@handles(AddPartitionsToTxnRequest)
async def handle_add_partitions_to_txn(
    broker: "Broker", request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version >= SEVERAL_FROM:
        denied = denial(broker, context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
        if denied is not ErrorCode.NONE:
            return AddPartitionsToTxnResponse(error_code=denied)
        added = await asyncio.gather(
            *(add(broker, each, version=VERSION_2) for each in request.transactions)
        )
        results = [
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=by_topic(each.topics, errors),
            )
            for each, errors in zip(request.transactions, added, strict=True)
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=tuple(results))
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    errors = find_denied(broker, context, transaction)
    errors = errors or await add(broker, transaction, version=VERSION_1)
    if context.api_version < FENCED_FROM:
        fenced, older = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
        errors = {at: older if error is fenced else error for at, error in errors.items()}
    abortable, known = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    errors = {at: known if error is abortable else error for at, error in errors.items()}
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=by_topic(transaction.topics, errors)
    )


def find_denied(
    broker: "Broker", context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    """Returns the error of each partition if some of them may not be written to; none otherwise."""
    name = transaction.transactional_id
    denied = denial(broker, context, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
    errors = dict[TopicPartition, ErrorCode]()
    for topic in transaction.topics:
        code = denied or denial(broker, context, AclOperation.WRITE, ResourceType.TOPIC, topic.name)
        for index in topic.partitions:
            is_known = broker.image.partition(topic.name, index) is not None
            spared = ErrorCode.OPERATION_NOT_ATTEMPTED
            otherwise = spared if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            errors[TopicPartition(topic.name, index)] = code or otherwise
    failures = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, denied} - {ErrorCode.NONE}
    return errors if failures & set(errors.values()) else {}


async def add(
    broker: "Broker", transaction: AddPartitionsToTxnTransaction, *, version: int
) -> Mapping[TopicPartition, ErrorCode]:
    """Adds all partitions or none: if one does not exist, no other is added."""
    partitions = [
        TopicPartition(topic.name, index)
        for topic in transaction.topics
        for index in topic.partitions
    ]
    if transaction.verify_only:
        return await broker.transactions.verify_or_add(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            partitions,
            may_add=False,
        )
    unknown = {each for each in partitions if broker.image.partition(*each) is None}
    if unknown:
        absent, spared = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        return {each: absent if each in unknown else spared for each in partitions}
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    error = await broker.transactions.add_partitions(
        transaction.transactional_id, producer, partitions, version=version
    )
    return dict.fromkeys(partitions, error)


def by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> Sequence[AddPartitionsToTxnTopicResult]:
    return tuple(
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=tuple(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ),
        )
        for topic in topics
    )
