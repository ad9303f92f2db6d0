"""DescribeCluster (key 60), versions 0 to 2: the cluster's id, its brokers and its controller.

Deliberately not done: controllers as endpoints of their own, since every broker takes
administrative requests.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.authorization import NOT_ASKED, cluster_operations
from headwater.core_log.broker.dispatch import RequestContext, address_for, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

BROKERS, CONTROLLERS = 1, 2


@handles(DescribeClusterRequest)
async def handle_describe_cluster(
    broker: "Broker", request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if is_known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker" if is_known else "No such type of endpoint",
        )
    image = broker.image
    brokers = []
    for node_id, known in sorted(image.brokers.items()):
        if known.is_fenced and not request.include_fenced_brokers:
            continue
        host, port = known.host, known.port
        if node_id == broker.node_id:
            host, port = address_for(broker, context)
        brokers.append(
            DescribeClusterBroker(
                broker_id=node_id, host=host, port=port, rack=known.rack, is_fenced=known.is_fenced
            )
        )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(broker, context)
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=image.controller_id,
        brokers=brokers,
        cluster_authorized_operations=operations,
    )
