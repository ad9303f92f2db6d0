"""Compression of Kafka's record batches by attribute code, and decompression within a limit."""

import threading
import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import DecodeError

if TYPE_CHECKING:
    from zstandard import ZstdCompressor, ZstdDecompressor

DECOMPRESSED_BYTES_MAX = 128 << 20
"""More than any broker accepts as one batch; larger records are treated as a decompression bomb."""

ZSTD_LEVEL, GZIP_LEVEL = 1, 6
_ZSTD_WINDOW_LOG = 18
"""Window of 2^18 bytes, which fits the processor's cache. The level's own window is twice that,
finds no more in records, and needs up to a fifth longer."""
_STEP_BYTES = 1 << 20  # growth step for a stream without a declared size
_ZSTD_WINDOW_BYTES_MAX = 128 << 20  # window that level 22 declares; untouched memory costs nothing
_SNAPPY_RATIO_MAX = 64  # three bytes of snappy copy at most 64
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS = b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 << 10
_BLOCK_LENGTH = Struct(">i")

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Kafka's numbers, in the lowest three bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(code: int, data: Buffer, *, level: int | None = None) -> Buffer:
    """Compresses in the format of the Java client, which every other client can read."""
    if code == Compression.NONE:
        return data
    if code not in _COMPRESSORS:
        raise DecodeError("the records have an unknown compression", code=code)
    return _COMPRESSORS[code](data, level)


def decompress(code: int, data: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompresses; allocates at most `bytes_max` and one step, as a guard against bombs."""
    if code == Compression.NONE:
        return data
    if code not in _DECOMPRESSORS:
        raise DecodeError("the records have an unknown compression", code=code)
    return _DECOMPRESSORS[code](memoryview(data), bytes_max)


def declared_bytes(code: int, data: Buffer) -> int | None:
    """Returns the declared size, for `decompress_into`; None if only decompression can tell it."""
    if code != Compression.ZSTD:
        return None
    import zstandard

    try:
        size: int = zstandard.frame_content_size(data)
    except zstandard.ZstdError as error:
        raise _damaged_error("zstd", error) from error
    return size if 0 <= size <= DECOMPRESSED_BYTES_MAX else None


def decompress_into(code: int, data: Buffer, room: memoryview) -> bool:
    """Fills `room`, which has the declared size; returns False if more follows: the size is
    declared for the first of several frames only."""
    assert code == Compression.ZSTD, "only zstd declares a size"
    import zstandard

    filled = 0
    try:
        with _zstd().stream_reader(data, read_across_frames=True) as stream:
            while filled < len(room) and (count := stream.readinto(room[filled:])):
                filled += count
            return filled == len(room) and not stream.read(1)
    except zstandard.ZstdError as error:
        raise _damaged_error("zstd", error) from error


class _Kept(threading.local):
    """Compressors of one thread. Making them for each batch costs a fifth of its reading, and half
    of the writing of a small batch."""

    compressor: "ZstdCompressor | None" = None
    decompressor: "ZstdDecompressor | None" = None


_KEPT = _Kept()


def _zstd() -> "ZstdDecompressor":
    if _KEPT.decompressor is None:
        import zstandard

        _KEPT.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    return _KEPT.decompressor


def _too_large(kind: str, bytes_max: int) -> DecodeError:
    return DecodeError(
        "compressed records expand beyond the limit", compression=kind, bytes_max=bytes_max
    )


def _damaged_error(kind: str, why: object) -> DecodeError:
    return DecodeError("compressed records are damaged", compression=kind, why=str(why))


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(GZIP_LEVEL if level is None else level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _decompress_gzip(data: memoryview, bytes_max: int) -> Buffer:
    out, rest = bytearray(), bytes(data)
    while rest:
        stream = zlib.decompressobj(31)
        while not stream.eof:
            try:
                part = stream.decompress(rest, _STEP_BYTES)
            except zlib.error as error:
                raise _damaged_error("gzip", error) from error
            rest = stream.unconsumed_tail
            if not part and not rest and not stream.eof:
                raise _damaged_error("gzip", "it ends early")
            out += part
            if len(out) > bytes_max:
                raise _too_large("gzip", bytes_max)
        rest = stream.unused_data
    return out


def _compress_snappy(data: Buffer, _: int | None) -> bytes:
    from cramjam import snappy

    view, parts = memoryview(data), [_XERIAL_MAGIC, _XERIAL_VERSIONS]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(bytes(view[start : start + _XERIAL_BLOCK_BYTES])))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, bytes_max: int) -> Buffer:
    """Java writes blocks of raw snappy in xerial's framing; librdkafka writes one block without
    framing."""
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, bytes_max, bytes_max)
    out, position = bytearray(), len(_XERIAL_MAGIC) + len(_XERIAL_VERSIONS)
    while position < len(data):
        if position + _BLOCK_LENGTH.size > len(data):
            raise _damaged_error("snappy", "it ends early")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise _damaged_error("snappy", "a block is longer than the rest")
        block = data[position : position + length]
        out += _decompress_snappy_block(block, bytes_max - len(out), bytes_max)
        position += length
    return out


def _decompress_snappy_block(block: memoryview, room: int, bytes_max: int) -> Buffer:
    from cramjam import DecompressionError, snappy

    try:
        declared = snappy.decompress_raw_len(block)
        if declared > room:
            raise _too_large("snappy", bytes_max)
        if declared > _SNAPPY_RATIO_MAX * len(block):
            raise _damaged_error("snappy", "the declared size is more than it can hold")
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise _damaged_error("snappy", error) from error


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    # Java's reader supports neither linked blocks nor newer features of the frame.
    return bytes(
        frame.compress(
            data,
            compression_level=level or 0,
            block_linked=False,
            block_size=frame.BLOCKSIZE_MAX64KB,
        )
    )


def _decompress_lz4(data: memoryview, bytes_max: int) -> Buffer:
    from lz4 import frame

    out, stream, rest = bytearray(), frame.LZ4FrameDecompressor(), bytes(data)
    try:
        while not stream.eof:
            part = stream.decompress(rest, max_length=_STEP_BYTES)
            rest = b""
            if not part and stream.needs_input and not stream.eof:
                raise _damaged_error("lz4", "it ends early")
            out += part
            if len(out) > bytes_max:
                raise _too_large("lz4", bytes_max)
    except (RuntimeError, EOFError) as error:
        raise _damaged_error("lz4", error) from error
    return out


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    if level is not None:
        return zstandard.ZstdCompressor(level=level).compress(data)
    if _KEPT.compressor is None:
        parameters = zstandard.ZstdCompressionParameters(
            compression_level=ZSTD_LEVEL, window_log=_ZSTD_WINDOW_LOG
        )
        _KEPT.compressor = zstandard.ZstdCompressor(compression_params=parameters)
    return _KEPT.compressor.compress(data)


def _decompress_zstd(data: memoryview, bytes_max: int) -> Buffer:
    import zstandard

    out = bytearray()
    try:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        with decompressor.stream_reader(data, read_across_frames=True) as stream:
            while part := stream.read(_STEP_BYTES):
                out += part
                if len(out) > bytes_max:
                    raise _too_large("zstd", bytes_max)
    except zstandard.ZstdError as error:
        raise _damaged_error("zstd", error) from error
    return out


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], Buffer]] = {
    Compression.GZIP: _compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[memoryview, int], Buffer]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}
