"""Checks of a batch before a leader appends it, for all ways in which it can arrive."""

from dataclasses import dataclass

from headwater.core_log.broker.batch_contents import InvalidRecord, check_contents, check_outline
from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    StorageFailed,
)
from headwater.core_log.records.batch_header import (
    HEADER_BYTES,
    BatchHeader,
    checksum_of,
    stamp_append_time,
)
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.producers import NO_TIMESTAMP, DuplicateBatch

ZSTD = 4
LOG_APPEND_TIME = "LogAppendTime"


class InvalidTimestamp(BatchRejected):
    """The batch's newest time is further from the broker's clock than the topic allows."""


class UnsupportedCompression(BatchRejected):
    """The batch's compression is newer than the version of its request."""


class InternalTopic(BatchRejected):
    """Only the broker itself writes to this topic."""


@dataclass(frozen=True, slots=True)
class AppendedBatch:
    """The offsets of an appended batch; `end_offset` must be on disk before the acknowledgment."""

    base_offset: int
    end_offset: int
    append_time_ms: int = -1


def read_header(records: memoryview | None) -> BatchHeader:
    """Returns the header of the one batch that a client may send per partition; checks its
    checksum."""
    if records is None or len(records) < HEADER_BYTES:
        raise CorruptBatch("no whole record batch was sent")
    header = BatchHeader.read(records)
    if header.magic != 2:
        raise InvalidRecord("record batches have format 2", magic=header.magic)
    if header.total_bytes != len(records):
        if 0 < header.total_bytes < len(records):
            raise InvalidRecord("one request carries one batch per partition")
        raise CorruptBatch("batch length contradicts its request", length=header.length)
    if checksum_of(records) != header.checksum:
        raise CorruptBatch("batch fails its checksum")
    return header


def append_batch(
    partition: Partition,
    batch: memoryview,
    header: BatchHeader,
    *,
    now_ms: int,
    is_urgent: bool,
    opened_for: LogConfig | None = None,
) -> AppendedBatch:
    """Checks and appends a batch; a retry of a stored batch gets its offset. Its records were
    checked before if it was `opened_for` the topic's present configuration."""
    if partition.is_offline:
        raise StorageFailed("partition is offline", topic=partition.topic, index=partition.index)
    config, append_time_ms = partition.log.config, -1
    check_header(config, header, now_ms)
    check_outline(header, batch)
    if config.opens_batches and opened_for is not config:
        batch = check_contents(config, header, batch)
    if config.opens_batches:  # and perhaps compressed again
        header = BatchHeader.read(batch)
        check_size(config, header)
    if config.message_timestamp_type == LOG_APPEND_TIME:
        stamp_append_time(batch, now_ms)
        append_time_ms = now_ms
        header = BatchHeader.read(batch)
    try:
        base_offset = partition.log.append(
            batch, header, leader_epoch=partition.leader_epoch, now_ms=now_ms
        )
    except DuplicateBatch as duplicate:
        if append_time_ms >= 0:
            append_time_ms = duplicate.timestamp_ms
        return AppendedBatch(duplicate.base_offset, duplicate.last_offset + 1, append_time_ms)
    partition.on_written(is_urgent=is_urgent)
    return AppendedBatch(base_offset, partition.log.end_offset, append_time_ms)


def check_header(config: LogConfig, header: BatchHeader, now_ms: int) -> None:
    """Checks the header of a client's batch by Kafka's rules."""
    check_size(config, header)
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecord("record count contradicts the offsets", count=header.record_count)
    if header.is_control:
        raise InvalidRecord("clients cannot write control batches")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecord("a producer's batch carries a sequence")
    if header.compression > ZSTD:
        raise InvalidRecord("compression is unknown", code=header.compression)
    if config.message_timestamp_type == LOG_APPEND_TIME or header.max_timestamp == NO_TIMESTAMP:
        return
    ahead_ms = header.max_timestamp - now_ms
    if (
        ahead_ms > config.message_timestamp_after_max_ms
        or -ahead_ms > config.message_timestamp_before_max_ms
    ):
        raise InvalidTimestamp("timestamp is too far from the broker's clock")


def check_size(config: LogConfig, header: BatchHeader) -> None:
    if header.total_bytes > config.max_message_bytes:
        raise BatchTooLarge(
            "batch is larger than max.message.bytes",
            size=header.total_bytes,
            limit=config.max_message_bytes,
        )
