"""The 61-byte header of a record batch (Kafka's format v2): reads, checks, stamps and seals it."""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, Self

from crc32c import crc32c

from headwater.core_log.foundation.errors import CorruptBatch

HEADER_BYTES = 61
LENGTH_END = 12  # the batch length does not count base offset and itself
CHECKED_FROM = 21  # the checksum covers the attributes and all that follows

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by compaction: the base timestamp is then the time from which tombstones may be removed."""

NO_PRODUCER = -1

_HEAD = Struct(">qiibIhiqqqhii")
_OFFSET_AND_EPOCH_AT = (Struct(">q"), Struct(">i"))
_CHECKSUM = Struct(">I")
_ATTRIBUTES, _MAX_TIMESTAMP = Struct(">h"), Struct(">q")
assert _HEAD.size == HEADER_BYTES, "the head of a v2 batch is 61 bytes"


class BatchHeader(NamedTuple):
    """The fields of a header, in their order on disk and on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @classmethod
    def read(cls, data: bytes | bytearray | memoryview, position: int = 0) -> Self:
        """Returns the header at `position`, unchecked; the caller knows that 61 bytes are there."""
        return cls._make(_HEAD.unpack_from(data, position))

    @property
    def total_bytes(self) -> int:
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The last sequence number; they wrap from 2^31 - 1 to 0."""
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def is_plausible(self) -> bool:
        """Returns whether these can be the first bytes of a batch; zeros and noise are not."""
        return (
            self.magic == 2
            and self.length >= HEADER_BYTES - LENGTH_END
            and self.base_offset >= 0
            and self.last_offset_delta >= 0
        )

    def pack(self) -> bytes:
        return _HEAD.pack(*self)


def checksum_of(batch: bytes | bytearray | memoryview) -> int:
    """Returns the CRC-32C of one whole batch, from its attributes on."""
    return crc32c(memoryview(batch)[CHECKED_FROM:])


def check_batch(batch: bytes | bytearray | memoryview) -> BatchHeader:
    """Returns the header of the one batch in these bytes; raises `CorruptBatch` if they are not
    one."""
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch("batch is shorter than its header", size=len(batch))
    header = BatchHeader.read(batch)
    if header.magic != 2 or header.total_bytes != len(batch):
        raise CorruptBatch(
            "the bytes are not one whole batch of format 2",
            magic=header.magic,
            length=header.length,
        )
    if checksum_of(batch) != header.checksum:
        raise CorruptBatch("batch fails its checksum", base_offset=header.base_offset)
    return header


def stamp(batch: bytearray | memoryview, *, base_offset: int, leader_epoch: int) -> None:
    """Writes the fields that the leader decides. Neither is covered by the checksum."""
    offset, epoch = _OFFSET_AND_EPOCH_AT
    offset.pack_into(batch, 0, base_offset)
    epoch.pack_into(batch, LENGTH_END, leader_epoch)


def stamp_append_time(batch: bytearray | memoryview, now_ms: int) -> None:
    """Replaces the producer's times by the log's own for the whole batch, and computes the checksum
    again."""
    attributes = _ATTRIBUTES.unpack_from(batch, CHECKED_FROM)[0] | LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, CHECKED_FROM, attributes)
    _MAX_TIMESTAMP.pack_into(batch, 35, now_ms)
    _CHECKSUM.pack_into(batch, 17, checksum_of(batch))


@dataclass(slots=True)
class Batch:
    """One encoded record batch, header and records; a writer adds its producer and seals it."""

    data: bytearray
    record_count: int
    max_timestamp: int = -1


def seal(
    batch: bytearray | memoryview,
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> None:
    """Writes the producer's identity into a complete batch, then its checksum."""
    header = BatchHeader.read(batch)
    attributes = header.attributes & ~TRANSACTIONAL
    sealed = header._replace(
        attributes=attributes | TRANSACTIONAL if is_transactional else attributes,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    batch[:HEADER_BYTES] = sealed.pack()
    _CHECKSUM.pack_into(batch, 17, checksum_of(batch))
