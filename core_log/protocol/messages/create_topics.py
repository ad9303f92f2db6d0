"""CreateTopics (key 19), versions 2 to 7: an administrator creates topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int8, Int16, Int32, Since, Tagged
from headwater.core_log.protocol.message import Request, request, response, struct
from headwater.core_log.protocol.primitives import ZERO_UUID


@request(api_key=19, versions=(2, 7), flexible_from=5)
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    topics: Sequence[CreatableTopic] = ()
    timeout_ms: Int32 = 60000
    validate_only: bool = False


@struct
class CreatableTopic:
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Sequence[CreatableReplicaAssignment] = ()
    configs: Sequence[CreatableTopicConfig] = ()


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = 0
    broker_ids: Sequence[Int32] = ()


@struct
class CreatableTopicConfig:
    name: str = ""
    value: str | None = ""


@response(versions=(2, 7), flexible_from=5)
class CreateTopicsResponse:
    throttle_time_ms: Int32 = 0
    topics: Sequence[CreatableTopicResult] = ()


@struct
class CreatableTopicResult:
    name: str = ""
    topic_id: Annotated[UUID, Since(7), IGNORABLE] = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = ""
    topic_config_error_code: Annotated[Int16, Since(5), Tagged(0), IGNORABLE] = 0
    num_partitions: Annotated[Int32, Since(5), IGNORABLE] = -1
    replication_factor: Annotated[Int16, Since(5), IGNORABLE] = -1
    configs: Annotated[Sequence[CreatableTopicConfigs] | None, Since(5), IGNORABLE] = ()


@struct
class CreatableTopicConfigs:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False
