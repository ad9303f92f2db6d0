"""A compaction takes effect only on the segments it has read, whatever happened meanwhile."""

from headwater.core_log.broker.log_cleaner import facts_of, still_stand
from headwater.core_log.storage.compaction import Cleanable, Swap
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import START_MS, append, open_log, sync
from tests.fakes import MemoryFiles

EVERYTHING = Swap(0, 6, 100)


def closed_segments() -> tuple[PartitionLog, Cleanable]:
    """Three closed segments of two records each, and what a worker was told of them."""
    config = LogConfig(cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    _, log = open_log(MemoryFiles(), config=config)
    for number in range(3):
        append(log, "a", "b", timestamp_ms=START_MS + 1000 * number)
        log.roll()
    sync(log)
    facts = tuple(facts_of(each) for each in log.segments if each is not log.segments.active)
    return log, Cleanable(facts, 0, 6, is_overdue=False)


def test_segments_that_nobody_touched_still_stand() -> None:
    log, found = closed_segments()

    assert still_stand(log, found, EVERYTHING)


def test_records_deleted_by_retention_are_not_brought_back() -> None:
    log, found = closed_segments()

    log.apply_retention(START_MS + 1500, below=log.end_offset)

    assert log.start_offset == 2
    assert not still_stand(log, found, EVERYTHING)
    assert still_stand(log, found, Swap(2, 6, 100))


def test_records_that_a_follower_gave_up_are_not_brought_back() -> None:
    for end_offset in (4, 5):
        log, found = closed_segments()

        log.truncate_to(end_offset)

        assert not still_stand(log, found, EVERYTHING)
