"""The records of control batches: the marker that ends a transaction in a partition, and the one
that begins a leader's epoch in the metadata log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from headwater.core_log.protocol.fields import Int16, Int32
from headwater.core_log.protocol.message import record, struct


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
