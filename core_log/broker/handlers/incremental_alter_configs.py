"""IncrementalAlterConfigs (key 44), versions 0 to 1: sets, deletes or extends single settings.

Brokers accept only the rates of throttled replicas, and the cluster-wide default of
min.insync.replicas; other settings are read when they start, so that there is nothing to delete,
and setting one is an invalid request, as of those that Kafka does not take while it runs.
Deliberately not done: log levels, the rate of moves between directories, of which there is one.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import ConfigResourceType, decide_and_commit
from headwater.core_log.broker.broker_config import broker_named, each_altered
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation, RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(IncrementalAlterConfigsRequest, is_forwarded=True)
async def handle_incremental_alter_configs(
    broker: "Broker", request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    async def change(resource: AlterConfigsResource) -> RequestRefusal | None:
        known = set(ConfigOperation)
        if any(each.config_operation not in known for each in resource.configs):
            return RequestRefusal(ErrorCode.INVALID_REQUEST, "An operation is none of 0 to 3")
        changes = [
            ConfigChange(each.name, ConfigOperation(each.config_operation), each.value)
            for each in resource.configs
        ]
        return await decide_and_commit(
            broker,
            lambda: (
                broker.controller.alter_config(resource.resource_name, changes)
                if resource.resource_type == ConfigResourceType.TOPIC
                else broker.controller.broker_configs.alter(
                    broker_named(resource.resource_name), changes
                )
            ),
            validate_only=request.validate_only,
        )

    responses = await each_altered(
        broker, request.resources, change, context, answer=AlterConfigsResourceResponse
    )
    return IncrementalAlterConfigsResponse(responses=responses)
