"""Reads one partition for a fetch: its error, its offsets, and ranges of segment files."""

from headwater.core_log.broker.partition import Partition, Reach
from headwater.core_log.foundation.errors import HeadwaterError, OffsetOutOfRange
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.fetch_frames import FetchLine, FetchPart
from headwater.core_log.replication.replica import find_divergence
from headwater.core_log.storage.files import FileRange

FetchedPartition = FetchLine[FileRange]


def read_line(
    partition: Partition, part: FetchPart, *, reach: Reach, bytes_max: int, at_least_one: bool
) -> FetchedPartition:
    """Returns one partition's line of the answer; errors are answers, too."""
    if (code := check_epoch(partition, part.leader_epoch)) is not ErrorCode.NONE:
        return FetchLine(code)
    if partition.is_offline:
        return FetchLine(ErrorCode.KAFKA_STORAGE_ERROR)
    log = partition.log
    marks = (partition.high_watermark, partition.last_stable_offset, log.start_offset)
    below = partition.limit(reach)
    try:
        diverging = find_divergence(
            log.epochs, last_fetched_epoch=part.last_epoch, fetch_offset=part.offset
        )
        if diverging is not None:
            return FetchLine(0, *marks, diverging=diverging)
        if not log.start_offset <= part.offset <= log.end_offset:
            raise OffsetOutOfRange("offset is not in this log", offset=part.offset)
        stretches: list[FileRange] = []
        if part.offset < below and bytes_max > 0:
            stretches = log.read_across(
                part.offset, below=below, bytes_max=bytes_max, at_least_one=at_least_one
            )
    except OffsetOutOfRange:
        return FetchLine(ErrorCode.OFFSET_OUT_OF_RANGE, *marks)
    except HeadwaterError:
        return FetchLine(ErrorCode.KAFKA_STORAGE_ERROR, *marks)
    aborted: list[tuple[int, int]] | None = None
    if reach is Reach.STABLE:
        aborted = []
        if stretches:
            found = log.find_aborted(part.offset, min(below, stretches[-1].next_offset))
            aborted = [(each.producer_id, each.first_offset) for each in found]
    return FetchLine(0, *marks, aborted, stretches, sum(each.size for each in stretches))


def refuse_stranger(partition: Partition, epoch: int) -> ErrorCode:
    """Returns Kafka's error for a client that claims to be a replica and is none of this
    partition's."""
    if (code := check_epoch(partition, epoch)) is not ErrorCode.NONE:
        return code
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH


def check_epoch(partition: Partition, epoch: int) -> ErrorCode:
    """Returns the error if a client's leader epoch is older or newer than the real one; -1 means
    that it knows none."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return ErrorCode.NONE
    if epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
