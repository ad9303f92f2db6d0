"""Metadata (key 3), versions 0 to 13: brokers, topics, partitions and their leaders.

An unknown topic that is requested by name is created if both the client and `auto_create_topics`
allow it. Deliberately not done: offline replicas' directories.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import (
    NOT_ASKED,
    allows,
    authorized_operations,
    cluster_operations,
)
from headwater.core_log.broker.dispatch import RequestContext, address_for, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headwater.core_log.protocol.primitives import ZERO_UUID
from headwater.core_log.replication.metadata import NO_LEADER, Topic
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

AUTO_CREATION_ASKED_FROM = 4
NO_TOPICS_MEANS_ALL_TO = 0


@handles(MetadataRequest)
async def handle_metadata(
    broker: "Broker", request: MetadataRequest, context: RequestContext
) -> MetadataResponse:
    wanted = request.topics
    if wanted is None or (not wanted and context.api_version <= NO_TOPICS_MEANS_ALL_TO):
        topics = [
            describe(broker, topic)
            for topic in list(broker.image.topics.values())
            if allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        ]
    else:
        may_create = request.allow_auto_topic_creation or (
            context.api_version < AUTO_CREATION_ASKED_FROM
        )
        topics = [await find(broker, context, each, may_create=may_create) for each in wanted]
    cluster = NOT_ASKED
    if request.include_cluster_authorized_operations:
        cluster = cluster_operations(broker, context)
    if request.include_topic_authorized_operations:
        topics = [with_operations(broker, context, each) for each in topics]
    return MetadataResponse(
        brokers=tuple(brokers(broker, context)),
        cluster_id=broker.cluster_id,
        controller_id=broker.image.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=cluster,
    )


def brokers(broker: "Broker", context: RequestContext) -> Iterable[MetadataResponseBroker]:
    """Returns the brokers; this one with the address that the client used, unless another one is
    advertised."""
    for node_id in broker.image.alive:
        known = broker.image.brokers[node_id]
        host, port = known.host, known.port
        if node_id == broker.node_id:
            host, port = address_for(broker, context)
        yield MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=known.rack)


async def find(
    broker: "Broker", context: RequestContext, wanted: MetadataRequestTopic, *, may_create: bool
) -> MetadataResponseTopic:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if wanted.name is None or wanted.topic_id != ZERO_UUID:
        topic = broker.image.topic_by_id(wanted.topic_id)
        if topic is None:
            return refused_topic(ErrorCode.UNKNOWN_TOPIC_ID, wanted)
        if not allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            return refused_topic(denied, wanted)
        return describe(broker, topic)
    if not allows(broker, context, AclOperation.DESCRIBE, ResourceType.TOPIC, wanted.name):
        return refused_topic(denied, wanted)
    topic = broker.image.topic(wanted.name)
    if topic is None:
        is_automatic = may_create and broker.settings.auto_create_topics
        if is_automatic and not may_be_created(broker, context, wanted.name):
            return refused_topic(denied, wanted)
        code = await broker.create_unknown(wanted.name, may_create=may_create)
        topic = broker.image.topic(wanted.name)
        if topic is None or code is not ErrorCode.NONE:
            return refused_topic(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted)
    return describe(broker, topic)


def may_be_created(broker: "Broker", context: RequestContext, name: str) -> bool:
    return allows(broker, context, AclOperation.CREATE, ResourceType.CLUSTER) or allows(
        broker, context, AclOperation.CREATE, ResourceType.TOPIC, name
    )


def with_operations(
    broker: "Broker", context: RequestContext, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED or topic.name is None:
        return topic
    operations = authorized_operations(broker, context, ResourceType.TOPIC, topic.name)
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=operations,
    )


def refused_topic(code: ErrorCode, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code,
        name=wanted.name,
        topic_id=wanted.topic_id,
        is_internal=False,
        partitions=(),
    )


def describe(broker: "Broker", topic: Topic) -> MetadataResponseTopic:
    partitions = []
    for index, partition in sorted(topic.partitions.items()):
        has_leader = partition.leader != NO_LEADER
        offline = [each for each in partition.replicas if not broker.image.is_alive(each)]
        partitions.append(
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.in_sync,
                offline_replicas=tuple(offline),
            )
        )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
    )
