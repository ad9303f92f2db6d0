"""AlterConfigs (key 33), versions 0 to 2: replaces the whole configuration of topics.

Old clients use it; IncrementalAlterConfigs cannot lose settings of another client. Brokers
accept only the rates of throttled replicas, and the cluster-wide default of min.insync.replicas.
Deliberately not done: their other settings, which are read when they start.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import ConfigResourceType, decide_and_commit
from headwater.core_log.broker.broker_config import broker_named, each_altered
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headwater.core_log.replication.decisions import RequestRefusal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


@handles(AlterConfigsRequest, is_forwarded=True)
async def handle_alter_configs(
    broker: "Broker", request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsResource) -> RequestRefusal | None:
        wanted = {each.name: each.value for each in resource.configs}
        return await decide_and_commit(
            broker,
            lambda: (
                broker.controller.replace_config(resource.resource_name, wanted)
                if resource.resource_type == ConfigResourceType.TOPIC
                else broker.controller.broker_configs.replace(
                    broker_named(resource.resource_name), wanted
                )
            ),
            validate_only=request.validate_only,
        )

    responses = await each_altered(
        broker, request.resources, replace, context, answer=AlterConfigsResourceResponse
    )
    return AlterConfigsResponse(responses=responses)
