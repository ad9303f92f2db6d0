"""Reads the files of a data directory: its partitions, segments and batches."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import DELETE_HORIZON, BatchHeader
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.scan import CheckedBatches
from headwater.core_log.storage.segment import ABORTED, INDEX, LOG, TIMES, file_name
from headwater.core_log.storage.swap import base_offsets

LOG_DIRECTORY = "log"


@dataclass(frozen=True, slots=True)
class SegmentSurvey:
    """One segment by its files, up to the first invalid batch."""

    base_offset: int
    end_offset: int
    batches: int
    records: int
    size: int
    first_timestamp: int
    max_timestamp: int
    index_sizes: dict[str, int]


def partition_directories(files: Files, directory: Path) -> dict[TopicPartition, Path]:
    """Returns the partitions of a data directory, of its log directory, or the one partition
    given."""
    if not files.exists(directory):
        raise ConfigError("the directory does not exist", path=str(directory))
    if base_offsets(files.names(directory)):
        return {partition_of(directory.resolve()): directory}
    inner = directory / LOG_DIRECTORY
    root = inner if files.exists(inner) else directory
    found = {
        partition_of(root / name): root / name
        for name in files.names(root)
        if is_partition_name(name) and base_offsets(files.names(root / name))
    }
    if not found:
        raise ConfigError(
            "the directory contains no log",
            path=str(directory),
            hint="name a data directory, or one partition's, such as data/log/orders-0",
        )
    return dict(sorted(found.items()))


def is_partition_name(name: str) -> bool:
    topic, _, number = name.rpartition("-")
    return bool(topic) and number.isdigit()


def partition_of(directory: Path) -> TopicPartition:
    """Returns topic and partition: `orders-0` is partition 0 of orders; a copy under another name
    still has a name."""
    topic, _, number = directory.name.rpartition("-")
    if topic and number.isdigit():
        return TopicPartition(topic, int(number))
    return TopicPartition(directory.name, 0)


def batches(
    files: Files, directory: Path, base_offset: int
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yields position, header and bytes of every valid batch of a segment, until the first invalid
    one."""
    file = files.open(directory / file_name(base_offset, LOG))
    return iter(CheckedBatches(file, 0, file.size(), next_offset=base_offset, may_skip=True))


def survey_segment(files: Files, directory: Path, base_offset: int) -> SegmentSurvey:
    """Counts the content of a segment."""
    count = records = 0
    first_timestamp = max_timestamp = -1
    end_offset = base_offset
    for _, header, _ in batches(files, directory, base_offset):
        count += 1
        records += header.record_count
        end_offset = header.next_offset
        if count == 1:
            # Compaction stores the time to drop tombstones in place of the first record's time.
            is_moved = bool(header.attributes & DELETE_HORIZON)
            first_timestamp = header.max_timestamp if is_moved else header.base_timestamp
        max_timestamp = max(max_timestamp, header.max_timestamp)
    paths = {
        suffix: directory / file_name(base_offset, suffix) for suffix in (INDEX, TIMES, ABORTED)
    }
    return SegmentSurvey(
        base_offset=base_offset,
        end_offset=end_offset,
        batches=count,
        records=records,
        size=files.size(directory / file_name(base_offset, LOG)),
        first_timestamp=first_timestamp,
        max_timestamp=max_timestamp,
        index_sizes={
            suffix: files.size(path) for suffix, path in paths.items() if files.exists(path)
        },
    )
