"""The metadata quorum of a broker that is its only voter, on the files of the metadata
partition."""

import logging
from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import DecodeError, StorageFailed
from headwater.core_log.protocol.message import encode_record
from headwater.core_log.protocol.messages.control_records import (
    ControlRecordKey,
    ControlRecordType,
    LeaderChangeMessage,
    LeaderChangeVoter,
)
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.replication.quorum import (
    ElectionState,
    LeaderChange,
    Quorum,
    QuorumEffects,
    Timeouts,
)
from headwater.core_log.replication.quorum_state import read_quorum_state, write_quorum_state
from headwater.core_log.replication.voters import ReplicaKey, VoterHistory
from headwater.core_log.storage.files import Files, refusal_of
from headwater.core_log.storage.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class LogView(NamedTuple):
    """The metadata log as the quorum sees it."""

    log: PartitionLog

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def durable_offset(self) -> int:
        return self.log.durable_offset

    @property
    def last_epoch(self) -> int:
        return self.log.epochs.epoch_at(self.log.end_offset - 1)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        return self.log.epochs.end_offset_for(epoch)


class MetadataQuorum:
    """Does what the quorum decides. As the leader of the metadata partition it says what is
    committed there."""

    has_enough_in_sync = True
    progress: Mapping[int, object] = {}
    """No other broker follows this partition."""

    def __init__(
        self, log: PartitionLog, files: Files, replica: ReplicaKey, *, clock: Clock, random: Random
    ) -> None:
        self._log, self._files, self._clock = log, files, clock
        timeouts = Timeouts()
        self._quorum = Quorum(
            replica,
            LogView(log),
            stored=self._read_state(),
            voters=VoterHistory(frozenset({replica})),
            timeouts=timeouts,
            jitter_ms=lambda: random.randrange(timeouts.election_ms),
            now_ms=clock.monotonic_ms(),
        )
        self._do(self._quorum.on_tick(clock.monotonic_ms()))
        assert self._quorum.is_leader, "an only voter elects itself"

    def _read_state(self) -> ElectionState:
        """An only voter has promised nothing to others that the epochs of its log do not tell."""
        try:
            return read_quorum_state(self._files, self._log.directory) or ElectionState()
        except DecodeError as error:
            logger.warning("%s; it is made anew from the epochs of the log", error)
            return ElectionState()

    @property
    def voters(self) -> list[ReplicaKey]:
        return sorted(self._quorum.voters.latest)

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def leader_epoch(self) -> int:
        return self._quorum.epoch

    @property
    def high_watermark(self) -> int:
        return self._quorum.high_watermark

    def on_append(self, end_offset: int) -> None:
        """The quorum reads the log's end itself."""

    def on_durable(self, offset: int) -> None:
        """Called when our own disk has everything below `offset`."""
        self._do(self._quorum.on_durable(self._clock.monotonic_ms()))

    def _do(self, effects: QuorumEffects) -> None:
        assert not effects.send, "an only voter has nobody to send to"
        assert effects.truncate_to is None, "an only voter never removes records"
        if effects.store is not None:
            try:
                write_quorum_state(self._files, self._log.directory, effects.store)
            except OSError as error:
                refused = refusal_of(self._files, self._log.directory, error)
                raise StorageFailed(refused, topic=self._log.topic, partition=0) from error
        for record in effects.append:
            assert isinstance(record, LeaderChange), "the only voter stays the only one"
            self._begin_epoch(record)

    def _begin_epoch(self, record: LeaderChange) -> None:
        now_ms = self._clock.now_ms()
        written = tuple(LeaderChangeVoter(voter_id=each.node_id) for each in self.voters)
        message = LeaderChangeMessage(
            leader_id=record.leader, voters=written, granting_voters=written
        )
        key = encode_record(ControlRecordKey(type=ControlRecordType.LEADER_CHANGE), 0)
        batch = encode_batch(
            [PlainRecord(key, encode_record(message, 0), timestamp_ms=now_ms)], is_control=True
        )
        self._log.append(
            memoryview(batch),
            BatchHeader.read(batch),
            leader_epoch=self._quorum.epoch,
            now_ms=now_ms,
        )
