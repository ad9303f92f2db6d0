"""A follower of a partition's leader, without log or network, and where its log diverges."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.core_log.foundation.errors import CorruptLog, OffsetOutOfRange

UNKNOWN = -1


class EpochEnds(Protocol):
    """The leader epochs of a log."""

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Returns the newest epoch up to `epoch`, and its end; (-1, -1) if that is not known."""
        ...


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


def find_divergence(
    epochs: EpochEnds, *, last_fetched_epoch: int, fetch_offset: int
) -> EpochEnd | None:
    """Returns where a reader's log diverges from the leader's; None while it is a prefix of it
    (KIP-595).

    Raises `OffsetOutOfRange` for an epoch that the leader does not know.
    """
    if last_fetched_epoch < 0:  # an empty log is a prefix of every log
        return None
    ours = EpochEnd(*epochs.end_offset_for(last_fetched_epoch))
    if ours.epoch < 0:
        raise OffsetOutOfRange("the leader has no such epoch", epoch=last_fetched_epoch)
    if ours.epoch < last_fetched_epoch or ours.end_offset < fetch_offset:
        return ours
    return None


def needs_snapshot(start: EpochEnd, *, last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Returns whether a reader must take the snapshot that ends at `start`, where the log begins:
    nobody knows any more where older epochs ended (KIP-630)."""
    is_before = fetch_offset < start.end_offset or last_fetched_epoch < start.epoch
    return is_before or (fetch_offset == start.end_offset and last_fetched_epoch != start.epoch)


class FollowerFetch(NamedTuple):
    """A follower's request to the leader."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class Follower:
    """A copy of a leader. It asks for more only when its records are on disk, because the request
    tells the leader that they are."""

    broker_id: int
    leader_id: int
    leader_epoch: int
    start_offset: int = 0
    end_offset: int = 0
    durable_offset: int = 0
    high_watermark: int = 0
    last_epoch: int = UNKNOWN  # of its newest batch
    allows_unclean: bool = False
    told_mark: int = UNKNOWN
    """The high watermark as this leader has told it; it may be ahead of our disk."""
    agreed_to: int = 0
    """The mark of compaction that all in sync have stored, as this leader has told it. It is asked
    again after a restart."""
    drops: int = UNKNOWN
    """How often this leader had dropped deletes or ends of transactions when it was heard last."""

    @property
    def has_caught_up(self) -> bool:
        """Whether it has heard what is committed, and has all of it; so has every replica that is
        counted as in sync."""
        return UNKNOWN < self.told_mark <= self.end_offset

    def next_fetch(self) -> FollowerFetch | None:
        """Returns the next fetch; None while fetched records wait for the disk."""
        if self.durable_offset < self.end_offset:
            return None
        return FollowerFetch(self.end_offset, self.last_epoch, self.leader_epoch)

    def on_append(self, end_offset: int, last_epoch: int) -> None:
        assert end_offset >= self.end_offset, "an append never shortens the log"
        assert last_epoch >= self.last_epoch, "epochs never go back along a log"
        self.end_offset, self.last_epoch = end_offset, last_epoch

    def on_durable(self, offset: int) -> None:
        assert self.durable_offset <= offset <= self.end_offset, (
            "what is on disk only grows, and was written before"
        )
        self.durable_offset = offset
        self.on_high_watermark(self.told_mark)

    def on_high_watermark(self, leaders: int) -> None:
        """Applies the leader's high watermark, up to what is on our disk; answers may arrive
        late."""
        self.told_mark = max(self.told_mark, leaders)
        self.high_watermark = max(self.high_watermark, min(leaders, self.durable_offset))

    def on_drops(self, leaders: int) -> None:
        """Applies how often this leader has dropped deletes or ends of transactions by now: all
        that is here has either come from it since, or lacks none of these."""
        self.drops = leaders

    def on_agreed(self, leaders: int) -> None:
        """Applies the mark up to which every replica may compact."""
        self.agreed_to = max(self.agreed_to, leaders)

    def on_diverging(self, leaders: EpochEnd, own: EpochEnds) -> int:
        """Returns the offset to truncate to; more rounds follow while the epochs still differ."""
        epoch, end = own.end_offset_for(leaders.epoch)
        shared = self.start_offset if epoch < 0 else min(end, leaders.end_offset)
        if shared < self.high_watermark and not self.allows_unclean:
            raise CorruptLog(
                "the leader does not have committed records",
                hint="set unclean.leader.election.enable on the topic to give them up",
                leader=self.leader_id,
                leader_epoch=self.leader_epoch,
                committed_to=self.high_watermark,
                leader_agrees_to=shared,
            )
        return shared

    def on_truncated(self, end_offset: int, last_epoch: int) -> None:
        """Called after a truncation. It can remove committed records only after an unclean
        election, which somebody allowed."""
        assert end_offset <= self.end_offset, "truncating never adds anything"
        self.end_offset, self.last_epoch = end_offset, last_epoch
        self.durable_offset = min(self.durable_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.told_mark = UNKNOWN

    def on_leader_start(self, start_offset: int) -> bool:
        """Called when the leader has deleted older records. Returns True if these are all our
        records and more: the log then starts again, empty, at that offset."""
        self.start_offset = max(self.start_offset, start_offset)
        if self.start_offset <= self.end_offset:
            return False
        self.on_start_over(self.start_offset)
        return True

    def on_start_over(self, start_offset: int) -> None:
        """Called when the log begins again, empty, at that offset."""
        self.start_offset = self.end_offset = self.durable_offset = start_offset
        self.high_watermark, self.told_mark = start_offset, UNKNOWN
        self.last_epoch = UNKNOWN

    def on_leader(self, leader_id: int, leader_epoch: int) -> None:
        assert leader_epoch > self.leader_epoch, "leader epochs only grow"
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        self.told_mark, self.agreed_to, self.drops = UNKNOWN, 0, UNKNOWN
