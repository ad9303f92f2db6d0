"""The records of control batches: the marker that ends a transaction in a partition, and in the
metadata log the beginning of a leader's epoch and the voters of its quorum."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated
from uuid import UUID

from headwater.core_log.protocol.fields import Int16, Int32, Tagged, UInt16
from headwater.core_log.protocol.message import record, struct
from headwater.core_log.protocol.primitives import ZERO_UUID

REPLACES = 10_000
"""A tag of our own, far above Kafka's."""


class ControlRecordType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@record(versions=(0, 0), reads_newer=True)
class ControlRecordKey:
    type: Int16 = 0


@record(versions=(0, 0), reads_newer=True)
class EndTxnMarker:
    coordinator_epoch: Int32 = 0


@record(versions=(0, 0), flexible_from=0)
class LeaderChangeMessage:
    leader_id: Int32 = 0
    voters: Sequence[LeaderChangeVoter] = ()
    granting_voters: Sequence[LeaderChangeVoter] = ()


@struct
class LeaderChangeVoter:
    voter_id: Int32 = 0


@struct
class KRaftVersions:
    """The versions of the quorum's protocol that a voter supports."""

    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@record(versions=(0, 0), flexible_from=0)
class VotersRecord:
    version: Int16 = 0
    voters: Sequence[QuorumVoter] = ()


@struct
class QuorumVoter:
    voter_id: Int32 = 0
    voter_directory_id: UUID = ZERO_UUID
    endpoints: Sequence[VoterEndpoint] = ()
    k_raft_version_feature: KRaftVersions = KRaftVersions()
    replaces: Annotated[Int32, Tagged(REPLACES)] = -1
    """Node that loses its vote to this one."""


@struct
class VoterEndpoint:
    name: str = ""
    host: str = ""
    port: UInt16 = 0
