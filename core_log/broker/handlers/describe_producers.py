"""DescribeProducers (key 61), version 0: the producers of a partition, and their open
transactions.

Any replica answers, as in Kafka: a follower knows what it has fetched.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(DescribeProducersRequest)
async def handle_describe_producers(
    broker: "Broker", request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    topics = tuple(
        TopicResponse(
            name=topic.name,
            partitions=tuple(
                answer(broker, context, topic.name, each) for each in topic.partition_indexes
            ),
        )
        for topic in request.topics
    )
    return DescribeProducersResponse(topics=topics)


def answer(broker: "Broker", context: RequestContext, topic: str, index: int) -> PartitionResponse:
    code = denial(broker, context, AclOperation.READ, ResourceType.TOPIC, topic)
    if code is not ErrorCode.NONE:
        return PartitionResponse(partition_index=index, error_code=code, error_message=code.meaning)
    partition = broker.replicas.replica(topic, index)
    if partition is None or not partition.is_served:
        code = broker.why_not_led(topic, index)
        return PartitionResponse(partition_index=index, error_code=code)
    states = tuple(
        ProducerState(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
            last_timestamp=producer.timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_from,
        )
        for producer_id, producer in partition.log.producers
    )
    return PartitionResponse(partition_index=index, active_producers=states)
