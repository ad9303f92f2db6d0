"""Checks of a batch and its records before a leader appends it, for all ways it can arrive."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    DecodeError,
    StorageFailed,
)
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    checksum_of,
    stamp_append_time,
)
from headwater.core_log.records.compression import (
    Buffer,
    Compression,
    compress,
    declared_bytes,
    decompress,
    decompress_into,
)
from headwater.core_log.storage.index import NO_TIMESTAMP
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.producers import DuplicateBatch

ZSTD = 4
LOG_APPEND_TIME = "LogAppendTime"
SMALL_BYTES, SMALL_RECORDS = 16 << 10, 400
"""Batches up to this size are checked at once, which takes less than half a millisecond."""
SLICE_RECORDS = 1_000
SCRATCH_BYTES_MAX = 16 << 20
"""Memory that is kept between batches; larger ones get their own."""
NULL = 1
"""The encoding of length -1."""

CODES = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_CHECKSUM = Struct(">I")
_MAGIC: dict[int, bytes] = {
    Compression.GZIP: b"\x1f\x8b",
    Compression.LZ4: b"\x04\x22\x4d\x18",
    Compression.ZSTD: b"\x28\xb5\x2f\xfd",
}
_RECORD_BYTES_MIN = 7


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
        raise CorruptBatch("record batch is incomplete")
    header = BatchHeader.read(records)
    if header.magic != 2:
        raise InvalidRecord("record batch is not of magic version 2", magic=header.magic)
    if header.total_bytes != len(records):
        if 0 < header.total_bytes < len(records):
            raise InvalidRecord("request has more than one record batch for a partition")
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
        raise InvalidRecord("control batch is not allowed from clients")
    if header.has_producer and header.base_sequence < 0:
        raise InvalidRecord("idempotent producer's batch has no sequence")
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


class InvalidRecord(BatchRejected):
    """The batch is whole, but has a record that a client may not append."""


class MissingKeys(InvalidRecord):
    """Records of a compacted topic have no key; compaction could only drop them."""

    def __init__(self, indices: list[int]) -> None:
        super().__init__("records of a compacted topic have no key", records=len(indices))
        self.indices = indices


class Scratch:
    """Memory for the records of one large batch, which is used again for the next one: fresh memory
    costs more than decompressing."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self) -> bytearray:
        """Returns the memory, which is the caller's until it is given back."""
        memory, self._memory = self._memory, bytearray()
        return memory

    def give_back(self, memory: bytearray) -> None:
        self._memory = memory


def check_outline(header: BatchHeader, batch: memoryview) -> None:
    """Checks from the header whether the batch can hold that many records with that compression."""
    size = len(batch) - HEADER_BYTES
    if header.compression == Compression.NONE:
        if size < header.record_count * _RECORD_BYTES_MIN:
            raise InvalidRecord("batch cannot hold its records", count=header.record_count)
        return
    magic = _MAGIC.get(header.compression, b"")
    if size == 0 or bytes(batch[HEADER_BYTES : HEADER_BYTES + len(magic)]) != magic:
        raise InvalidRecord("records are not compressed as the batch says")


def is_small(batch: memoryview) -> bool:
    return len(batch) <= SMALL_BYTES and BatchHeader.read(batch).record_count <= SMALL_RECORDS


def check_contents(config: LogConfig, header: BatchHeader, batch: memoryview) -> memoryview:
    """Returns the batch as its topic requires it; raises `InvalidRecord` if it contradicts its
    header."""
    section = _decompress(header, batch, bytearray())
    for _ in _walk(section, header.record_count, needs_keys=config.is_compacted):
        pass
    return _compress_for(config, header, batch, section)


async def open_in_thread(
    config: LogConfig, header: BatchHeader, batch: memoryview, scratch: Scratch
) -> memoryview:
    """Does the same for a large batch in a thread, while other requests are served."""
    memory = scratch.take()
    section = await asyncio.to_thread(_decompress, header, batch, memory)
    for _ in _walk(section, header.record_count, needs_keys=config.is_compacted):
        await asyncio.sleep(0)
    opened = await asyncio.to_thread(_compress_for, config, header, batch, section)
    section.release()
    scratch.give_back(memory)  # not after a cancellation, when a thread may still use it
    return opened


def _decompress(header: BatchHeader, batch: memoryview, memory: bytearray) -> memoryview:
    """Decompresses into `memory`, which may grow, if the size is declared."""
    payload = batch[HEADER_BYTES:]
    try:
        size = declared_bytes(header.compression, payload)
        if size is not None and size <= SCRATCH_BYTES_MAX:
            memory.extend(bytes(max(size - len(memory), 0)))
            room = memoryview(memory)[:size]
            if decompress_into(header.compression, payload, room):
                return room
        return memoryview(decompress(header.compression, payload))
    except DecodeError as error:
        raise InvalidRecord("records cannot be decompressed", reason=error.problem) from error


def _compress_for(
    config: LogConfig, header: BatchHeader, batch: memoryview, section: Buffer
) -> memoryview:
    code = CODES.get(config.compression_type, header.compression)
    if code == header.compression:
        return batch
    payload = compress(code, section, level=_level(config, code))
    head = header._replace(
        attributes=header.attributes & ~COMPRESSION_MASK | code,
        length=HEADER_BYTES - LENGTH_END + len(payload),
    )
    fresh = bytearray().join((head.pack(), payload))
    _CHECKSUM.pack_into(fresh, CHECKED_FROM - _CHECKSUM.size, checksum_of(fresh))
    return memoryview(fresh)


def _level(config: LogConfig, code: int) -> int | None:
    match code:
        case Compression.GZIP:
            return config.compression_gzip_level
        case Compression.LZ4:
            return config.compression_lz4_level
        case Compression.ZSTD:
            return config.compression_zstd_level
    return None


def _walk(section: memoryview, count: int, *, needs_keys: bool) -> Iterator[None]:
    """Reads record after record, with pauses; checks each one's offset, and its key if required."""
    keyless: list[int] = []
    position = 0
    try:
        for begin in range(0, count, SLICE_RECORDS):
            end = min(begin + SLICE_RECORDS, count)
            position = _step_over(section, position, range(begin, end), keyless)
            yield
    except IndexError:
        position = -1
    if position != len(section):
        raise InvalidRecord("batch contradicts its record count", count=count)
    if needs_keys and keyless:
        raise MissingKeys(keyless)


def _step_over(  # noqa: C901 - all in line, since it is done for each record
    section: memoryview, position: int, indices: range, keyless: list[int]
) -> int:
    """Returns where the record after these begins."""
    for index in indices:
        length = section[position]
        position += 1
        if length > 0x7F:
            more = section[position]
            position += 1
            if more < 0x80:
                length += (more - 1) << 7
            else:
                length, position = _read_varint(section, position - 2)
        end = position + (length >> 1)
        position += 1  # attributes
        while section[position] > 0x7F:  # the timestamp's delta
            position += 1
        delta, position = section[position + 1], position + 2
        if delta > 0x7F:
            more = section[position]
            position += 1
            if more < 0x80:
                delta += (more - 1) << 7
            else:
                delta, position = _read_varint(section, position - 2)
        key = section[position]
        if key & 1:
            if key != NULL:
                raise InvalidRecord("key of a record has a negative length", index=index)
            keyless.append(index)
        elif key > 0x7F:
            key, position = _read_varint(section, position)
        if length & 1 or delta != index << 1 or position + (key >> 1) >= end:
            raise InvalidRecord("record contradicts its batch", index=index)
        position = end
    return position


def _read_varint(section: memoryview, position: int) -> tuple[int, int]:
    """Returns the encoded number, with its sign in the lowest bit, and where it ends."""
    number = shift = 0
    while (byte := section[position]) > 0x7F:
        number |= (byte & 0x7F) << shift
        shift += 7
        position += 1
        if shift > 28:
            raise InvalidRecord("a number in a record does not end")
    return number | byte << shift, position + 1
