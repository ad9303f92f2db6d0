"""The decompressed content of a file, which can be read at any position but cheapest in order."""

import re
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Protocol

from headwater.connectors.files.settings import FileFormat, InputCompression
from headwater.connectors.files.storage import RawFile

CHUNK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
GZIP_WINDOW = 31  # the widest window, with gzip's own header and checksum
ZSTD_STEP_BYTES = 1 << 10
"""Input that zstd decompresses at once: it can become 32 thousand times larger."""

FORMATS: dict[str, FileFormat] = {
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "json": "jsonl",
    "csv": "csv",
    "tsv": "csv",
    "parquet": "parquet",
    "pq": "parquet",
    "txt": "text",
    "log": "text",
}
COMPRESSIONS: dict[str, InputCompression] = {
    "gz": "gzip",
    "gzip": "gzip",
    "zst": "zstd",
    "zstd": "zstd",
}
ROTATED = re.compile(r"[.-]\d[\d.-]*$")
"""Suffixes of log rotation: `.1`, `-20260131`, `.2026-01-31`."""


class BrokenFile(Exception):
    """The file breaks its own format; the message has no part of its content."""


class TruncatedFile(BrokenFile):
    """The file ends within a compressed stream: it is being written, or was copied incompletely."""


class FileContent(Protocol):
    """A file's bytes as decompressed lines."""

    def read(self, position: int, size: int) -> bytes:
        """Returns at most `size` bytes; fewer only if there are no more at present."""
        ...


def kind_of(name: str) -> tuple[FileFormat | None, InputCompression]:
    """Returns format and compression by the endings of the name; None for an unknown format."""
    rest = ROTATED.sub("", PurePosixPath(name).name)
    ending = rest.rpartition(".")[2].lower()
    compression = COMPRESSIONS.get(ending, "none")
    if compression != "none":
        rest = ROTATED.sub("", rest.rpartition(".")[0])
    return FORMATS.get(rest.rpartition(".")[2].lower()), compression


def content_of(raw: RawFile, compression: InputCompression) -> FileContent:
    return raw if compression == "none" else DecompressedContent(raw, compression)


class DecompressedContent:
    """A compressed file, read from its start; going back starts again. `cut` is set if its end is
    incomplete."""

    def __init__(self, raw: RawFile, compression: InputCompression) -> None:
        self._raw, self._compression = raw, compression
        self._restart()

    def read(self, position: int, size: int) -> bytes:
        if position < self._position:
            self._restart()
        while self._position < position and (skipped := self._take(position - self._position)):
            del skipped
        if self._position < position:
            return b""
        parts, wanted = [], size
        while wanted and (part := self._take(wanted)):
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def _restart(self) -> None:
        unpack = gunzip if self._compression == "gzip" else unzstd
        self._chunks, self._chunk, self._position = unpack(self._raw), b"", 0
        self.cut: TruncatedFile | None = None

    def _take(self, size: int) -> bytes:
        """Returns some of the next bytes; none only at the end."""
        if not self._chunk:
            try:
                self._chunk = next((chunk for chunk in self._chunks if chunk), b"")
            except TruncatedFile as cut:
                self.cut = cut
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        self._position += len(taken)
        return taken


def gunzip(raw: RawFile) -> Iterator[bytes]:
    """Yields the content of gzip members one after another."""
    position, packed, stream = 0, b"", zlib.decompressobj(GZIP_WINDOW)
    try:
        while True:
            if not packed:
                packed = raw.read(position, CHUNK_BYTES)
                position += len(packed)
            if not packed and position and not stream.eof:
                raise TruncatedFile("the file ends within its gzip stream")
            if not packed:
                return
            if stream.eof:
                packed = packed.lstrip(b"\0")  # padding between members and at the end
                if not packed:
                    continue
                stream = zlib.decompressobj(GZIP_WINDOW)
            while chunk := stream.decompress(packed, CHUNK_BYTES):
                packed = stream.unconsumed_tail
                yield chunk
            packed = stream.unused_data
    except zlib.error as error:
        raise BrokenFile("the gzip stream is damaged") from error


def unzstd(raw: RawFile) -> Iterator[bytes]:
    """Yields the content of zstd frames one after another."""
    import zstandard

    position, frames = 0, zstandard.ZstdDecompressor()
    stream = frames.decompressobj()
    try:
        while packed := raw.read(position, CHUNK_BYTES):
            position += len(packed)
            for start in range(0, len(packed), ZSTD_STEP_BYTES):
                part = packed[start : start + ZSTD_STEP_BYTES]
                while part:
                    if stream.eof:
                        stream = frames.decompressobj()
                    yield stream.decompress(part)
                    part = stream.unused_data if stream.eof else b""
    except zstandard.ZstdError as error:
        raise BrokenFile("the zstd stream is damaged") from error
    if position and not stream.eof:
        raise TruncatedFile("the file ends within its zstd stream")
