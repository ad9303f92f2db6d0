"""ListConfigResources (key 74), versions 0 to 1: topics and brokers, which have a configuration.

No group and no subscription to client metrics has one here.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import ConfigResourceType
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

TYPES_FROM = 1
"""Before this version only subscriptions to client metrics were listed."""


@handles(ListConfigResourcesRequest)
async def handle_list_config_resources(
    broker: "Broker", request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    if context.api_version < TYPES_FROM:
        return ListConfigResourcesResponse()
    types = dict.fromkeys(request.resource_types) or dict.fromkeys(ConfigResourceType)
    if any(each not in set(ConfigResourceType) for each in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=each)
            for each in types
            for name in names_of(broker, each)
        ]
    )


def names_of(broker: "Broker", resource_type: int) -> Iterator[str]:
    match resource_type:
        case ConfigResourceType.TOPIC:
            yield from broker.image.topics
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER:
            yield from map(str, broker.image.alive)
