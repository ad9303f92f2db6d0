"""What a file holds once it is decompressed, read at any place but cheapest in order."""

import io
import re
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Protocol

from connectors.files.place import RawFile
from connectors.files.settings import Compression, Format

CHUNK_BYTES = 1 << 20
BOM = b"\xef\xbb\xbf"
GZIP_WINDOW = 31  # the widest window, with gzip's own header and checksum

FORMATS: dict[str, Format] = {
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
COMPRESSIONS: dict[str, Compression] = {"gz": "gzip", "gzip": "gzip", "zst": "zstd", "zstd": "zstd"}
ROTATED = re.compile(r"[.-]\d[\d.-]*$")
"""What rotation appends: `.1`, `-20260131`, `.2026-01-31`."""


class BrokenFile(Exception):
    """What the file holds breaks its own format; the message says how, without any content."""


class Content(Protocol):
    """A file's bytes as its lines are in them."""

    def read(self, position: int, size: int) -> bytes:
        """At most `size` bytes; fewer only where there are no more just now."""
        ...


def kind_of(name: str) -> tuple[Format | None, Compression]:
    """What the endings of a name say; no format where they say nothing."""
    rest = ROTATED.sub("", PurePosixPath(name).name)
    ending = rest.rpartition(".")[2].lower()
    compression = COMPRESSIONS.get(ending, "none")
    if compression != "none":
        rest = ROTATED.sub("", rest.rpartition(".")[0])
    return FORMATS.get(rest.rpartition(".")[2].lower()), compression


def content_of(raw: RawFile, compression: Compression) -> Content:
    return raw if compression == "none" else Unpacked(raw, compression)


class Unpacked:
    """A compressed file from its start; going back means starting again."""

    def __init__(self, raw: RawFile, compression: Compression) -> None:
        self._raw, self._compression = raw, compression
        self._restart()

    def read(self, position: int, size: int) -> bytes:
        if position < self._position:
            self._restart()
        while self._position < position and (skipped := self._take(position - self._position)):
            del skipped
        if self._position < position:
            return b""
        pieces, wanted = [], size
        while wanted and (piece := self._take(wanted)):
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def _restart(self) -> None:
        unpack = gunzip if self._compression == "gzip" else unzstd
        self._chunks, self._chunk, self._position = unpack(self._raw), b"", 0

    def _take(self, size: int) -> bytes:
        """Some of the next bytes; nothing only at the end."""
        if not self._chunk:
            self._chunk = next((chunk for chunk in self._chunks if chunk), b"")
        taken, self._chunk = self._chunk[:size], self._chunk[size:]
        self._position += len(taken)
        return taken


def gunzip(raw: RawFile) -> Iterator[bytes]:
    """Members one after the other. An end in the middle of one is where it is still written."""
    position, packed, stream = 0, b"", zlib.decompressobj(GZIP_WINDOW)
    try:
        while True:
            if not packed:
                packed = raw.read(position, CHUNK_BYTES)
                position += len(packed)
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
    """Frames one after the other."""
    import zstandard

    reader = zstandard.ZstdDecompressor().stream_reader(
        io.BufferedReader(InOrder(raw), CHUNK_BYTES), read_across_frames=True
    )
    try:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk
    except zstandard.ZstdError as error:
        raise BrokenFile("the zstd stream is damaged") from error


class InOrder(io.RawIOBase):
    """A file to be read once from its start to its end, as Python's own readers want it."""

    def __init__(self, raw: RawFile) -> None:
        self._raw, self._position = raw, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        content = self._raw.read(self._position, len(buffer))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)
