"""Where the logs of a leader and of its reader diverge, as their leader epochs tell."""

from typing import NamedTuple, Protocol

from headwater.core_log.foundation.errors import OffsetOutOfRange


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
