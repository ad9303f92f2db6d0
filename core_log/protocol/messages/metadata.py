"""Metadata (key 3), versions 0 to 13: brokers, topics, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int16, Int32, NullableSince, Since, Until
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=3, versions=(0, 13), flexible_from=9)
class MetadataRequest(Request["MetadataResponse"]):
    topics: Annotated[Sequence[MetadataRequestTopic] | None, NullableSince(1)] = ()
    allow_auto_topic_creation: Annotated[bool, Since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Since(8), Until(10)] = False
    include_topic_authorized_operations: Annotated[bool, Since(8)] = False


@struct
class MetadataRequestTopic:
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    name: Annotated[str | None, NullableSince(10)] = ""


@response(versions=(0, 13), flexible_from=9)
class MetadataResponse:
    throttle_time_ms: Annotated[Int32, Since(3), IGNORABLE] = 0
    brokers: Sequence[MetadataResponseBroker] = ()
    cluster_id: Annotated[str | None, Since(2), IGNORABLE] = None
    controller_id: Annotated[Int32, Since(1), IGNORABLE] = -1
    topics: Sequence[MetadataResponseTopic] = ()
    cluster_authorized_operations: Annotated[Int32, Since(8), Until(10)] = -0x8000_0000
    error_code: Annotated[Int16, Since(13), IGNORABLE] = 0


@struct
class MetadataResponseBroker:
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, Since(1), IGNORABLE] = None


@struct
class MetadataResponseTopic:
    error_code: Int16 = 0
    name: Annotated[str | None, NullableSince(12)] = ""
    topic_id: Annotated[UUID, Since(10), IGNORABLE] = ZERO_UUID
    is_internal: Annotated[bool, Since(1), IGNORABLE] = False
    partitions: Sequence[MetadataResponsePartition] = ()
    topic_authorized_operations: Annotated[Int32, Since(8)] = -0x8000_0000


@struct
class MetadataResponsePartition:
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Since(7), IGNORABLE] = -1
    replica_nodes: Sequence[Int32] = ()
    isr_nodes: Sequence[Int32] = ()
    offline_replicas: Annotated[Sequence[Int32], Since(5), IGNORABLE] = ()
