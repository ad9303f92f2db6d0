"""AlterConfigs (key 33), versions 0 to 2: replaces the whole configuration of topics.

Old clients use it; IncrementalAlterConfigs cannot lose what somebody else has set. Deliberately not
done: brokers, whose settings are read when they start.
"""

from collections import Counter
from typing import TYPE_CHECKING

from core_log.broker.administration import (
    ResourceType,
    broker_name_refused,
    decided,
    unknown_resource,
)
from core_log.broker.dispatch import RequestContext, handles
from core_log.protocol.error_codes import ErrorCode
from core_log.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from core_log.replication.decisions import Refused

if TYPE_CHECKING:
    from core_log.broker.broker import Broker


@handles(AlterConfigsRequest)
async def handle_alter_configs(
    broker: "Broker", request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    times = Counter((each.resource_type, each.resource_name) for each in request.resources)
    responses = []
    for each in request.resources:
        names = [config.name for config in each.configs]
        refused = refused_outright(
            broker, each.resource_type, each.resource_name, names, times
        ) or await replace(broker, each, validate_only=request.validate_only)
        refused = refused or Refused(ErrorCode.NONE)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=refused.code,
                error_message=refused.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return AlterConfigsResponse(responses=responses)


async def replace(
    broker: "Broker", resource: AlterConfigsResource, *, validate_only: bool
) -> Refused | None:
    wanted = {each.name: each.value for each in resource.configs}
    return await decided(
        broker,
        lambda: broker.controller.replace_config(resource.resource_name, wanted),
        validate_only=validate_only,
    )


def refused_outright(
    broker: "Broker",
    resource_type: int,
    resource_name: str,
    keys: list[str],
    times: Counter[tuple[int, str]],
) -> Refused | None:
    """What is wrong with a resource before its configuration is looked at."""
    if times[resource_type, resource_name] > 1:
        return Refused(ErrorCode.INVALID_REQUEST, "Each resource may be named once only")
    if len(set(keys)) < len(keys):
        return Refused(ErrorCode.INVALID_REQUEST, "Each configuration key may be named once only")
    if resource_type == ResourceType.BROKER:
        return broker_name_refused(broker, resource_name) or Refused(
            ErrorCode.INVALID_REQUEST, "Settings of a broker are read when it starts"
        )
    if resource_type != ResourceType.TOPIC:
        return unknown_resource(resource_type)
    if not resource_name:
        return Refused(ErrorCode.INVALID_REQUEST, "Defaults of all topics are broker settings")
    return None
