"""Reads Fetch (key 1) requests and writes the answers, which are mostly ranges of segment files."""

# The declared message in `messages/fetch.py` is its reference; a test compares the two.

import struct
from collections.abc import Sequence
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.inter_broker_messages import (
    AGREED_TO,
    CLEANED_TO,
    DELETES_DROPPED_TO,
    DROPS,
)
from headwater.core_log.protocol.primitives import WireReader, read_topic, varint_bytes

RACKS_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13

NO_MARKS, NO_REPLICA = (0, 0, 0, 0), -1
_SHORT, _INT, _LONG = Struct(">h"), Struct(">i"), Struct(">q")
_HEAD_TO_V14 = Struct(">iiiibii")  # replica, wait, min, max, isolation, session id and epoch
_HEAD_FROM_V15 = Struct(">iiibii")
_HEAD_TO_V6 = Struct(">iiiib")
_PART_TO_V4 = Struct(">iqi")  # partition, offset, bytes
_PART_TO_V8 = Struct(">iqqi")  # and the follower's log start
_PART_TO_V11 = Struct(">iiqqi")  # and the leader epoch it knows
_PART_FROM_V12 = Struct(">iiqiqi")  # and the epoch of its last record
_LINE_TO_V4 = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_LINE = Struct(">ihqqq")  # and log start
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_REPLICA = Struct(">iq")


class FetchPart(NamedTuple):
    """One requested partition. `topic` is a name, or from version 13 on an id."""

    topic: str | bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start_offset: int
    bytes_max: int


class FetchFrame(NamedTuple):
    """A request; a follower names itself and its registration, from version 15 on."""

    replica_id: int
    replica_epoch: int
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation: int
    session_id: int
    session_epoch: int
    rack: str
    """Where the client is, from version 11 on (KIP-392)."""
    parts: list[FetchPart]


S = TypeVar("S")


class FetchLine(NamedTuple, Generic[S]):
    """One partition of the answer; `records` are the places of its bytes."""

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    records: Sequence[S] = ()
    record_bytes: int = 0
    diverging: tuple[int, int] | None = None  # epoch and its end offset, for a follower
    marks: tuple[int, int, int, int] = NO_MARKS
    """For a follower: how far compaction goes, drops deletes, and is known to all in sync, and how
    often it has dropped deletes or ends of transactions."""
    read_replica: int = NO_REPLICA  # the broker that the client should read from instead


def read_fetch(frame: memoryview, position: int, version: int) -> FetchFrame:
    """Reads a request; raises DecodeError for anything that is not one whole request."""
    try:
        return _read_fetch(WireReader(frame, position), version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError("fetch request ends too early or is malformed") from error


def _read_fetch(reader: WireReader, version: int) -> FetchFrame:
    replica_id, session_id, session_epoch = -1, 0, -1
    if version >= 15:
        wait, low, high, isolation, session_id, session_epoch = reader.unpack(_HEAD_FROM_V15)
    elif version >= 7:
        replica_id, wait, low, high, isolation, session_id, session_epoch = reader.unpack(
            _HEAD_TO_V14
        )
    else:
        replica_id, wait, low, high, isolation = reader.unpack(_HEAD_TO_V6)
    replica_epoch = -1
    if version >= FLEXIBLE_FROM:
        parts, rack = _read_flexible_parts(reader, version)
        replica_id, replica_epoch = _replica_in_tags(reader, replica_id)
    else:
        parts = _read_plain_parts(reader, version)
        rack = _read_plain_rack(reader) if version >= RACKS_FROM else ""
    return FetchFrame(
        *(replica_id, replica_epoch, wait, low, high, isolation, session_id, session_epoch),
        rack,
        parts,
    )


def _read_plain_parts(reader: WireReader, version: int) -> list[FetchPart]:
    parts: list[FetchPart] = []
    for _ in range(reader.check_count(reader.unpack(_INT)[0])):
        topic = reader.take_text(reader.unpack(_SHORT)[0])
        for _ in range(reader.check_count(reader.unpack(_INT)[0])):
            epoch, start = -1, -1
            if version >= 9:
                index, epoch, offset, start, size = reader.unpack(_PART_TO_V11)
            elif version >= 5:
                index, offset, start, size = reader.unpack(_PART_TO_V8)
            else:
                index, offset, size = reader.unpack(_PART_TO_V4)
            parts.append(FetchPart(topic, index, epoch, offset, -1, start, size))
    return parts


def _read_plain_rack(reader: WireReader) -> str:
    """Reads what follows the parts: topics that are forgotten, and the rack."""
    for _ in range(reader.check_count(reader.unpack(_INT)[0])):
        reader.take_text(reader.unpack(_SHORT)[0])
        reader.take(4 * reader.check_count(reader.unpack(_INT)[0]))
    return reader.take_text(reader.unpack(_SHORT)[0])


def _read_flexible_parts(reader: WireReader, version: int) -> tuple[list[FetchPart], str]:
    has_ids = version >= TOPIC_IDS_FROM
    parts: list[FetchPart] = []
    for _ in range(reader.check_count(reader.read_varint() - 1)):
        topic = read_topic(reader, has_id=has_ids)
        for _ in range(reader.check_count(reader.read_varint() - 1)):
            index, epoch, offset, last_epoch, start, size = reader.unpack(_PART_FROM_V12)
            reader.skip_tags()
            parts.append(FetchPart(topic, index, epoch, offset, last_epoch, start, size))
        reader.skip_tags()
    for _ in range(reader.check_count(reader.read_varint() - 1)):
        read_topic(reader, has_id=has_ids)
        reader.take(4 * reader.check_count(reader.read_varint() - 1))
        reader.skip_tags()
    return parts, reader.take_text(reader.read_varint() - 1)


def _replica_in_tags(reader: WireReader, replica_id: int) -> tuple[int, int]:
    """From version 15 on, a follower's tag 1 has its id and epoch."""
    replica_epoch = -1
    for _ in range(reader.read_varint()):
        tag, content = reader.read_varint(), reader.take(reader.read_varint())
        if tag == 1 and len(content) >= _REPLICA.size:
            named, epoch = _REPLICA.unpack_from(content)
            replica_id, replica_epoch = max(replica_id, named), epoch
    return replica_id, replica_epoch


def write_fetch_answer(
    parts: Sequence[FetchPart],
    lines: Sequence[FetchLine[S]],
    correlation_id: int,
    version: int,
    *,
    error_code: int = 0,
    wait_ms: int = 0,
    session_id: int = 0,
) -> list[bytes | S]:
    """Returns the whole frame as chunks: our bytes, and the records' places."""
    writer = _Writer[S]()
    if version >= FLEXIBLE_FROM:
        _write_flexible(writer, parts, lines, version)
    else:
        _write_plain(writer, parts, lines, version)
    writer.chunks.append(b"".join(writer.pending))
    head = _INT.pack(correlation_id) + (b"\0" if version >= FLEXIBLE_FROM else b"")
    head += _INT.pack(wait_ms)
    if version >= 7:
        head += _SHORT.pack(error_code) + _INT.pack(session_id)
    first = writer.chunks[0]
    assert isinstance(first, bytes), "an answer begins with bytes of ours"
    size = len(head) + writer.record_bytes
    size += sum(len(chunk) for chunk in writer.chunks if isinstance(chunk, bytes))
    writer.chunks[0] = _INT.pack(size) + head + first
    return writer.chunks


class _Writer(Generic[S]):
    """A buffer for small parts that is closed where records follow."""

    def __init__(self) -> None:
        self.chunks: list[bytes | S] = []
        self.pending: list[bytes] = []
        self.record_bytes = 0

    def add_records(self, line: FetchLine[S]) -> None:
        if line.record_bytes:
            self.chunks.append(b"".join(self.pending))
            self.pending = []
            self.chunks += line.records
            self.record_bytes += line.record_bytes


def _runs(parts: Sequence[FetchPart]) -> list[tuple[str | bytes, int, int]]:
    """Yields runs of one topic: the topic, its first and its end index."""
    runs: list[tuple[str | bytes, int, int]] = []
    for index, part in enumerate(parts):
        if runs and runs[-1][0] == part.topic:
            runs[-1] = (part.topic, runs[-1][1], index + 1)
        else:
            runs.append((part.topic, index, index + 1))
    return runs


def _write_plain(
    writer: _Writer[S], parts: Sequence[FetchPart], lines: Sequence[FetchLine[S]], version: int
) -> None:
    runs = _runs(parts)
    writer.pending.append(_INT.pack(len(runs)))
    for topic, begin, end in runs:
        assert isinstance(topic, str), "topic ids come with flexible versions only"
        name = topic.encode()
        writer.pending += (_SHORT.pack(len(name)), name, _INT.pack(end - begin))
        for part, line in zip(parts[begin:end], lines[begin:end], strict=True):
            _write_line_head(writer.pending, part.partition, line, version)
            aborted = line.aborted
            writer.pending.append(_INT.pack(-1 if aborted is None else len(aborted)))
            writer.pending += (_ABORTED.pack(*each) for each in aborted or ())
            if version >= RACKS_FROM:
                writer.pending.append(_INT.pack(line.read_replica))
            writer.pending.append(_INT.pack(line.record_bytes))
            writer.add_records(line)


def _write_line_head(chunks: list[bytes], index: int, line: FetchLine[S], version: int) -> None:
    if version >= 5:
        chunks.append(
            _LINE.pack(
                index,
                line.error_code,
                line.high_watermark,
                line.last_stable_offset,
                line.log_start_offset,
            )
        )
    else:
        chunks.append(
            _LINE_TO_V4.pack(index, line.error_code, line.high_watermark, line.last_stable_offset)
        )


def _line_tags(diverging: tuple[int, int] | None, marks: tuple[int, int, int, int]) -> bytes:
    tags: list[bytes] = []
    if diverging is not None:  # number 0, 13 bytes, closed by its own empty tags
        tags.append(b"\x00\x0d" + _EPOCH_END.pack(*diverging) + b"\0")
    for tag, number in zip((CLEANED_TO, DELETES_DROPPED_TO, AGREED_TO, DROPS), marks, strict=True):
        if number:
            tags.append(varint_bytes(tag) + b"\x08" + _LONG.pack(number))
    return varint_bytes(len(tags)) + b"".join(tags)


def _write_flexible(
    writer: _Writer[S], parts: Sequence[FetchPart], lines: Sequence[FetchLine[S]], version: int
) -> None:
    runs = _runs(parts)
    writer.pending.append(varint_bytes(len(runs) + 1))
    for topic, begin, end in runs:
        if isinstance(topic, str):
            name = topic.encode()
            writer.pending += (varint_bytes(len(name) + 1), name)
        else:
            writer.pending.append(topic)
        writer.pending.append(varint_bytes(end - begin + 1))
        for part, line in zip(parts[begin:end], lines[begin:end], strict=True):
            _write_line_head(writer.pending, part.partition, line, version)
            aborted = line.aborted
            writer.pending.append(b"\0" if aborted is None else varint_bytes(len(aborted) + 1))
            for each in aborted or ():
                writer.pending += (_ABORTED.pack(*each), b"\0")
            writer.pending += (_INT.pack(line.read_replica), varint_bytes(line.record_bytes + 1))
            writer.add_records(line)
            if line.diverging is None and line.marks is NO_MARKS:
                writer.pending.append(b"\0")
            else:
                writer.pending.append(_line_tags(line.diverging, line.marks))
        writer.pending.append(b"\0")
    writer.pending.append(b"\0")
