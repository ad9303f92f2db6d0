"""FindCoordinator (key 10), versions 0 to 6: the broker that coordinates a group or transactional
id.

Deliberately not done: coordinators of share groups (key type 2).
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import denial
from headwater.core_log.broker.dispatch import RequestContext, address_for, handles
from headwater.core_log.groups.group_coordinator import partition_of
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.core_log.replication.metadata import NO_LEADER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headwater.core_log.security.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

STATE_TOPICS = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
"""By key type: the topic in which the coordinators of such keys keep their state."""
RESOURCES = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID}
SEVERAL_KEYS_FROM = 4


@handles(FindCoordinatorRequest)
async def handle_find_coordinator(
    broker: "Broker", request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    if context.api_version >= SEVERAL_KEYS_FROM:
        found = [
            await find(broker, request.key_type, key, context) for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=tuple(found))
    one = await find(broker, request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def find(broker: "Broker", key_type: int, key: str, context: RequestContext) -> Coordinator:
    """Returns the coordinator. The internal topic is created at the first request."""
    topic_name = STATE_TOPICS.get(key_type)
    if topic_name is None:
        return nobody(key, ErrorCode.INVALID_REQUEST)
    denied = denial(broker, context, AclOperation.DESCRIBE, RESOURCES[key_type], key)
    if denied is not ErrorCode.NONE:
        return nobody(key, denied)
    if broker.image.topic(topic_name) is None:
        error = await broker.create_unknown(topic_name, may_create=True)
        if error is not ErrorCode.NONE:
            return nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    topic = broker.image.topic(topic_name)
    if topic is None:
        return nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = topic.partitions[partition_of(key, len(topic.partitions))].leader
    if leader == broker.node_id:
        host, port = address_for(broker, context)
    elif leader != NO_LEADER and broker.image.is_alive(leader):
        host, port = broker.image.brokers[leader].host, broker.image.brokers[leader].port
    else:
        return nobody(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=leader, host=host, port=port, error_message=None)


def nobody(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.meaning
    )
