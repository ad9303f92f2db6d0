"""A follower's work on its leader's answer for one partition."""

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.inter_broker_messages import ReplicaFetchPartitionResponse
from headwater.core_log.replication.follower import EpochEnd, Follower, FollowerFetch


class ReplicaCopy:
    """One partition that follows; its leader's answers are applied one after another."""

    def __init__(self, partition: Partition, follower: Follower, *, is_in_sync: bool) -> None:
        self.partition, self._log, self._follower = partition, partition.log, follower
        self._is_in_sync = is_in_sync

    def take(
        self, fetch: FollowerFetch, line: ReplicaFetchPartitionResponse, *, now_ms: int
    ) -> bool:
        """Applies the answer to `fetch`. Returns False if the leader refused it."""
        if line.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(line)
        elif line.error_code:
            return False
        elif line.diverging_epoch.end_offset >= 0:
            leaders = EpochEnd(line.diverging_epoch.epoch, line.diverging_epoch.end_offset)
            self._truncate(self._follower.on_diverging(leaders, self._log.epochs))
        elif self._may_lack_ends(line):
            if self._is_in_sync:  # after an unclean election: others rely on what is here
                return False
            self._start_over(line.log_start_offset)
        else:
            self._copy(line, now_ms)
        return True

    def _may_lack_ends(self, line: ReplicaFetchPartitionResponse) -> bool:
        """Whether the leader's compaction may have dropped what this log never had: tombstones, so
        that the values which they deleted would stay here for ever, or the end of a transaction
        that is open here. It has not where all that is here came from this leader after it last
        dropped any."""
        log = self._log
        if log.end_offset == log.start_offset:
            return False
        may_lack = line.deletes_dropped_to > log.end_offset
        if not line.drops:  # from a broker of an older version
            return may_lack and line.deletes_dropped_to > log.deletes_dropped_to
        if line.cleaned_to > log.end_offset:
            may_lack = may_lack or log.producers.first_unstable_offset() is not None
        return may_lack and line.drops != self._follower.drops

    def _copy(self, line: ReplicaFetchPartitionResponse, now_ms: int) -> None:
        log, follower = self._log, self._follower
        marks = (line.cleaned_to, line.deletes_dropped_to)
        if any(new > old for new, old in zip(marks, self.marks, strict=True)):
            log.note_cleaned(cleaned_to=marks[0], deletes_dropped_to=marks[1])
        follower.on_agreed(line.agreed_to)
        if line.drops:  # an answer with a high watermark alone has none of this
            follower.on_drops(line.drops)
        if line.records:
            self.partition.append_fetched(line.records, now_ms=now_ms)
        follower.on_high_watermark(line.high_watermark)
        if line.log_start_offset > log.start_offset:
            if follower.on_leader_start(line.log_start_offset):
                log.start_over(line.log_start_offset)
            else:
                log.delete_records_before(line.log_start_offset)

    @property
    def marks(self) -> tuple[int, int]:
        return self._log.cleaned_to, self._log.deletes_dropped_to

    def _on_out_of_range(self, line: ReplicaFetchPartitionResponse) -> None:
        """The leader's log begins after our end, or ends before it."""
        follower = self._follower
        if line.log_start_offset <= follower.end_offset and not follower.allows_unclean:
            raise CorruptLog(
                "the leader's log ends before this one",
                hint="set unclean.leader.election.enable on the topic to give up what it lacks",
                leader=follower.leader_id,
                leader_epoch=follower.leader_epoch,
                end_offset=follower.end_offset,
            )
        self._start_over(line.log_start_offset)

    def _truncate(self, offset: int) -> None:
        self._log.truncate_to(offset)
        self._follower.on_truncated(self._log.end_offset, self._log.last_epoch)

    def _start_over(self, offset: int) -> None:
        self._log.start_over(offset)
        self._follower.on_start_over(offset)
