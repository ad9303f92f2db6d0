"""Record batches one record at a time, for the broker's own records and for tools; the error of a
batch that cannot be read."""

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from headwater.core_log.foundation.errors import (
    CorruptBatch,
    DecodeError,
    HeadwaterError,
    UnreadableBatch,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    check_batch,
    checksum_of,
)
from headwater.core_log.records.compression import Buffer, compress, decompress

Header = tuple[str, bytes | None]

_MARKER_KEY, _MARKER_VALUE = Struct(">hh"), Struct(">hi")  # version, type; version, epoch
_CHECKSUM = Struct(">I")
_VARINT_BYTES_MAX = 10
_RECORD_BYTES_MIN = 7  # length, attributes, two deltas, two lengths, header count
UNREADABLE = (DecodeError, CorruptBatch)
"""Errors of reading a batch whose content differs from its header or from what was stored."""


class PlainRecord(NamedTuple):
    """One record. A negative offset means its index in the batch. Header names are normally
    UTF-8."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    timestamp_ms: int = -1
    offset: int = -1


class Marker(NamedTuple):
    """The end of a producer's transaction, as written into each of its partitions."""

    commit: bool
    coordinator_epoch: int


def encode_batch(
    records: Sequence[PlainRecord],
    *,
    compression: int = 0,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    leader_epoch: int = -1,
    attributes: int = 0,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    """Returns one sealed batch. A delete horizon takes the place of the base timestamp."""
    times = [record.timestamp_ms for record in records]
    base_timestamp = times[0] if times else -1
    attributes |= compression & COMPRESSION_MASK
    attributes |= TRANSACTIONAL if is_transactional else 0
    attributes |= CONTROL if is_control else 0
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON
    section, last_delta = bytearray(), -1
    for index, record in enumerate(records):
        last_delta = index if record.offset < 0 else record.offset - base_offset
        section += _encode_record(record, record.timestamp_ms - base_timestamp, last_delta)
    payload = compress(compression, section)
    header = BatchHeader(
        base_offset=base_offset,
        length=HEADER_BYTES - LENGTH_END + len(payload),
        leader_epoch=leader_epoch,
        magic=2,
        checksum=0,
        attributes=attributes,
        last_offset_delta=last_delta if last_offset_delta is None else last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max(times, default=-1),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    batch = bytearray(header.pack()) + payload
    _CHECKSUM.pack_into(batch, CHECKED_FROM - _CHECKSUM.size, checksum_of(batch))
    return batch


def encode_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """Returns the control batch that ends a transaction in one partition."""
    key, value = _MARKER_KEY.pack(0, int(commit)), _MARKER_VALUE.pack(0, coordinator_epoch)
    return encode_batch(
        [PlainRecord(key, value, timestamp_ms=timestamp_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def decode_marker(record: PlainRecord) -> Marker | None:
    """Returns the marker; None for another kind of control record, which readers must skip."""
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise DecodeError("control record has no type")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise DecodeError("transaction marker has no coordinator epoch")
    return Marker(kind == 1, _MARKER_VALUE.unpack_from(record.value)[1])


def iterate_batches(data: Buffer) -> Iterator[memoryview]:
    """Yields each whole batch; an incomplete last one, which a fetch may end with, is left out."""
    view, position = memoryview(data), 0
    while position + HEADER_BYTES <= len(view):
        header = BatchHeader.read(view, position)
        if not header.is_plausible:
            raise CorruptBatch("the bytes do not begin with a record batch", position=position)
        end = position + header.total_bytes
        if end > len(view):
            return
        yield view[position:end]
        position = end


def decode_batch(data: Buffer) -> tuple[BatchHeader, list[PlainRecord]]:
    """Checks and returns the one whole batch in these bytes."""
    header = check_batch(data)
    section = bytes(decompress(header.compression, memoryview(data)[HEADER_BYTES:]))
    if not 0 <= header.record_count <= len(section) // _RECORD_BYTES_MIN:
        raise DecodeError("batch cannot hold its records", record_count=header.record_count)
    records, position = [], 0
    for _ in range(header.record_count):
        record, position = _decode_record(section, position, header)
        records.append(record)
    if position != len(section):
        raise DecodeError("batch goes on after its last record", position=position)
    return header, records


def _encode_record(record: PlainRecord, timestamp_delta: int, offset_delta: int) -> bytes:
    body = bytearray(1)  # attributes, unused by the format
    body += encode_varint(timestamp_delta) + encode_varint(offset_delta)
    body += _encode_field(record.key) + _encode_field(record.value)
    body += encode_varint(len(record.headers))
    for name, value in record.headers:
        body += _encode_field(name.encode("utf-8", "surrogateescape")) + _encode_field(value)
    return encode_varint(len(body)) + body


def _encode_field(field: bytes | None) -> bytes:
    return encode_varint(-1) if field is None else encode_varint(len(field)) + field


def _decode_record(section: bytes, position: int, header: BatchHeader) -> tuple[PlainRecord, int]:
    length, position = decode_varint(section, position)
    end = position + length
    if length < _RECORD_BYTES_MIN - 1 or end > len(section):
        raise DecodeError("record is longer than its batch", position=position)
    timestamp_delta, position = decode_varint(section, position + 1)
    offset_delta, position = decode_varint(section, position)
    key, position = _decode_field(section, position, end)
    value, position = _decode_field(section, position, end)
    headers, position = _decode_headers(section, position, end)
    if position != end:
        raise DecodeError("record does not end where it says", position=position)
    append_time = header.attributes & LOG_APPEND_TIME
    timestamp = header.max_timestamp if append_time else header.base_timestamp + timestamp_delta
    timestamp = (timestamp + (1 << 63)) % (1 << 64) - (1 << 63)  # wraps, as in all of Kafka
    return PlainRecord(key, value, headers, timestamp, header.base_offset + offset_delta), end


def _decode_headers(section: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(section, position)
    if not 0 <= count <= (end - position) // 2:
        raise DecodeError("record cannot hold its headers", position=position)
    headers = []
    for _ in range(count):
        name, position = _decode_field(section, position, end)
        value, position = _decode_field(section, position, end)
        if name is None:
            raise DecodeError("record header has no name", position=position)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position


def _decode_field(section: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(section, position)
    if length == -1:
        return None, position
    if not 0 <= length <= end - position:
        raise DecodeError("field is longer than its record", position=position)
    return section[position : position + length], position + length


def encode_varint(number: int) -> bytes:
    """Encodes in zigzag: small numbers of either sign take few bytes."""
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns the number at `position`, and where it ends."""
    zigzag = 0
    for index, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        zigzag |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position + index + 1
    raise DecodeError("number does not end", position=position)


def find_unreadable(
    error: HeadwaterError,
    data: Buffer,
    read: Callable[[memoryview], object],
    partition: TopicPartition | None,
) -> HeadwaterError:
    """Returns the error of the first batch that `read` cannot read alone, with its place. Returns
    `error` if each batch can be read alone."""
    for batch in iterate_batches(data):
        try:
            read(batch)
        except UNREADABLE as alone:
            return unreadable(alone, batch, partition)
    return error


def unreadable(
    error: HeadwaterError, batch: Buffer, partition: TopicPartition | None
) -> UnreadableBatch:
    header, place = BatchHeader.read(batch), {} if partition is None else partition._asdict()
    hint = ""
    if partition is not None and partition.topic.startswith("__"):
        directory = f"DATA/log/{partition.topic}-{partition.partition}"
        hint = f"restore it, or stop who has the log, then: headwater log mend {directory}"
    elif partition is not None:
        follows = f"--partition {partition.partition} --from {header.next_offset}"
        hint = f"what follows it: headwater tail {partition.topic} {follows}"
    return UnreadableBatch(
        f"a stored batch cannot be read: {error.problem}",
        hint=hint,
        **place,
        offset=header.base_offset,
        last_offset=header.last_offset,
        **{
            name: fact
            for name, fact in error.facts.items()
            if name not in ("position", "base_offset")
        },
    )
