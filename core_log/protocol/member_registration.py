"""BrokerRegistration (key 62) between our brokers, with private fields for what replicas have
lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import IGNORABLE, Int32, Int64, Since, Tagged
from headwater.core_log.protocol.message import Request, request, struct
from headwater.core_log.protocol.messages.broker_registration import (
    BrokerFeature,
    BrokerListener,
    BrokerRegistrationResponse,
)
from headwater.core_log.protocol.primitives import ZERO_UUID

FORMER_DIRECTORY_ID, LOSSES = 10_000, 10_001
"""Tags of our own, far above Kafka's."""


@request(api_key=62, versions=(0, 4), flexible_from=0)
class MemberRegistrationRequest(Request["BrokerRegistrationResponse"]):
    broker_id: Int32 = 0
    cluster_id: str = ""
    incarnation_id: UUID = ZERO_UUID
    listeners: Sequence[BrokerListener] = ()
    features: Sequence[BrokerFeature] = ()
    rack: str | None = ""
    is_migrating_zk_broker: Annotated[bool, Since(1)] = False
    log_dirs: Annotated[Sequence[UUID], Since(2), IGNORABLE] = ()
    previous_broker_epoch: Annotated[Int64, Since(3), IGNORABLE] = -1
    former_directory_id: Annotated[UUID, Tagged(FORMER_DIRECTORY_ID)] = ZERO_UUID
    """The directory has the partitions that it had under this id."""
    losses: Annotated[Sequence[ReplicaLoss], Tagged(LOSSES)] = ()


@struct
class ReplicaLoss:
    """A replica that lacks, or may lack, records that it had on its disk."""

    topic_id: UUID = ZERO_UUID
    partition: Int32 = 0
    is_certain: bool = False
    last_epoch: Int32 = -1
    end_offset: Int64 = 0


__all__ = ["BrokerRegistrationResponse", "MemberRegistrationRequest", "ReplicaLoss"]
