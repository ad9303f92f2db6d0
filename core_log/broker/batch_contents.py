"""Checks inside a batch that some topics need: whole records, keys, compression."""

import asyncio
from collections.abc import Iterator
from struct import Struct

from headwater.core_log.foundation.errors import BatchRejected, DecodeError
from headwater.core_log.records.batch_header import (
    CHECKED_FROM,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_END,
    BatchHeader,
    checksum_of,
)
from headwater.core_log.records.compression import (
    Buffer,
    Compression,
    compress,
    declared_bytes,
    decompress,
    decompress_into,
)
from headwater.core_log.storage.log_config import LogConfig

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
