"""Reads and writes Produce (key 0) in place: it is the one request whose cost counts per batch."""

# The declared message in `messages/produce.py` is its reference; a test compares the two.

import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.primitives import WireReader, read_topic, varint_bytes

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_SHORT, _INT, _ACKS_TIMEOUT = Struct(">h"), Struct(">i"), Struct(">hi")
_HEAD = Struct(">hii")  # acks, timeout, count of topics
_INDEX_AND_SIZE = Struct(">ii")
_PART = Struct(">ihqqq")  # index, error, base offset, append time, log start
_PART_TO_V4 = Struct(">ihqq")


class ProducePart(NamedTuple):
    """One partition's records in a request. `topic` is a name, or from version 13 on an id."""

    topic: str | bytes
    partition: int
    records: memoryview | None


class ProduceFrame(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    parts: list[ProducePart]


class PartAnswer(NamedTuple):
    """One partition of the answer."""

    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    """The index of each rejected record, and the reason."""


def read_produce(frame: memoryview, position: int, version: int) -> ProduceFrame:
    """Reads a request; raises DecodeError for anything that is not one whole request."""
    try:
        read = _read_flexible if version >= FLEXIBLE_FROM else _read_plain
        return read(WireReader(frame, position), version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError("produce request ends too early or is malformed") from error


def _read_plain(reader: WireReader, version: int) -> ProduceFrame:
    size = reader.unpack(_SHORT)[0]
    transactional_id = reader.take_text(size) if size >= 0 else None
    acks, timeout_ms, topic_count = reader.unpack(_HEAD)
    parts: list[ProducePart] = []
    for _ in range(reader.check_count(topic_count)):
        topic = reader.take_text(reader.unpack(_SHORT)[0])
        for _ in range(reader.check_count(reader.unpack(_INT)[0])):
            index, size = reader.unpack(_INDEX_AND_SIZE)
            parts.append(ProducePart(topic, index, reader.take(size) if size >= 0 else None))
    return ProduceFrame(transactional_id, acks, timeout_ms, parts)


def _read_flexible(reader: WireReader, version: int) -> ProduceFrame:
    size = reader.read_varint()
    transactional_id = reader.take_text(size - 1) if size else None
    acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
    parts: list[ProducePart] = []
    for _ in range(reader.check_count(reader.read_varint() - 1)):
        topic = read_topic(reader, has_id=version >= TOPIC_IDS_FROM)
        for _ in range(reader.check_count(reader.read_varint() - 1)):
            index, size = reader.unpack(_INT)[0], reader.read_varint()
            parts.append(ProducePart(topic, index, reader.take(size - 1) if size else None))
            reader.skip_tags()
        reader.skip_tags()
    reader.skip_tags()
    return ProduceFrame(transactional_id, acks, timeout_ms, parts)


def write_produce_answer(
    parts: list[ProducePart],
    answers: list[PartAnswer],
    correlation_id: int,
    version: int,
    wait_ms: int = 0,
) -> bytes:
    """Returns the whole frame, with length and header, in the order of the request. `wait_ms` is
    how long the client is not listened to, because of its quota."""
    write = _write_flexible if version >= FLEXIBLE_FROM else _write_plain
    body = write(parts, answers, correlation_id, version, wait_ms)
    return _INT.pack(len(body)) + body


def _by_topic(
    parts: list[ProducePart], answers: list[PartAnswer]
) -> list[tuple[str | bytes, list[tuple[int, PartAnswer]]]]:
    topics: list[tuple[str | bytes, list[tuple[int, PartAnswer]]]] = []
    for part, answer in zip(parts, answers, strict=True):
        if not topics or topics[-1][0] != part.topic:
            topics.append((part.topic, []))
        topics[-1][1].append((part.partition, answer))
    return topics


def _write_plain(
    parts: list[ProducePart],
    answers: list[PartAnswer],
    correlation_id: int,
    version: int,
    wait_ms: int,
) -> bytes:
    topics = _by_topic(parts, answers)
    chunks = [_INT.pack(correlation_id), _INT.pack(len(topics))]
    for topic, lines in topics:
        assert isinstance(topic, str), "topic ids come with flexible versions only"
        name = topic.encode()
        chunks += (_SHORT.pack(len(name)), name, _INT.pack(len(lines)))
        for index, (code, base, time_ms, start, message, errors) in lines:
            if version >= 5:
                chunks.append(_PART.pack(index, code, base, time_ms, start))
            else:
                chunks.append(_PART_TO_V4.pack(index, code, base, time_ms))
            if version >= 8:
                chunks.append(_INT.pack(len(errors)))
                for record_index, reason in errors:
                    chunks += (_INT.pack(record_index), _plain_text(reason))
                chunks.append(_plain_text(message))
    chunks.append(_INT.pack(wait_ms))
    return b"".join(chunks)


def _write_flexible(
    parts: list[ProducePart],
    answers: list[PartAnswer],
    correlation_id: int,
    version: int,
    wait_ms: int,
) -> bytes:
    topics = _by_topic(parts, answers)
    chunks = [_INT.pack(correlation_id), b"\0", varint_bytes(len(topics) + 1)]
    for topic, lines in topics:
        if isinstance(topic, str):
            name = topic.encode()
            chunks += (varint_bytes(len(name) + 1), name)
        else:
            chunks.append(topic)
        chunks.append(varint_bytes(len(lines) + 1))
        for index, (code, base, time_ms, start, message, errors) in lines:
            chunks.append(_PART.pack(index, code, base, time_ms, start))
            chunks.append(varint_bytes(len(errors) + 1))
            for record_index, reason in errors:
                chunks += (_INT.pack(record_index), _flexible_text(reason), b"\0")
            chunks += (_flexible_text(message), b"\0")
        chunks.append(b"\0")
    chunks += (_INT.pack(wait_ms), b"\0")  # no tags
    return b"".join(chunks)


def _plain_text(words: str | None) -> bytes:
    if words is None:
        return _SHORT.pack(-1)
    data = words.encode()
    return _SHORT.pack(len(data)) + data


def _flexible_text(words: str | None) -> bytes:
    if words is None:
        return b"\0"
    data = words.encode()
    return varint_bytes(len(data) + 1) + data
