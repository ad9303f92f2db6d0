"""DescribeCluster (key 60), versions 0 to 2: the brokers and the controller of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from headwater.core_log.protocol.fields import Int8, Int16, Int32, Since
from headwater.core_log.protocol.message import Request, request, response, struct


@request(api_key=60, versions=(0, 2), flexible_from=0)
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, Since(1)] = 1
    include_fenced_brokers: Annotated[bool, Since(2)] = False


@response(versions=(0, 2), flexible_from=0)
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Since(1)] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker] = ()
    cluster_authorized_operations: Int32 = -0x8000_0000


@struct
class DescribeClusterBroker:
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, Since(2)] = False
