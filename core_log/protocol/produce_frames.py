"""Reads and writes Produce (key 0) in place: it is the one request whose cost counts per batch."""

# The declared message in `messages/produce.py` is its reference; a test compares the two.

import struct
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.protocol.frames import (
    check_count,
    records_at,
    skip_tags,
    text,
)
from headwater.core_log.protocol.primitives import read_varint, varint_bytes

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13

_SHORT, _INT, _ACKS_TIMEOUT = Struct(">h"), Struct(">i"), Struct(">hi")
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
        return read(frame, position, version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise DecodeError("produce request ends too early or is malformed") from error


def _read_plain(frame: memoryview, position: int, version: int) -> ProduceFrame:
    size = _SHORT.unpack_from(frame, position)[0]
    transactional_id, position = None, position + 2
    if size >= 0:
        transactional_id, position = text(frame, position, size)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count = _INT.unpack_from(frame, position + 6)[0]
    position += 10
    parts: list[ProducePart] = []
    for _ in range(check_count(topic_count, frame, position)):
        size = _SHORT.unpack_from(frame, position)[0]
        topic, position = text(frame, position + 2, size)
        part_count = _INT.unpack_from(frame, position)[0]
        position += 4
        for _ in range(check_count(part_count, frame, position)):
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            position += 8
            records, position = records_at(frame, position, size)
            parts.append(ProducePart(topic, index, records))
    return ProduceFrame(transactional_id, acks, timeout_ms, parts)


def _read_flexible(frame: memoryview, position: int, version: int) -> ProduceFrame:
    size, position = read_varint(frame, position)
    transactional_id = None
    if size:
        transactional_id, position = text(frame, position, size - 1)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_varint(frame, position + 6)
    parts: list[ProducePart] = []
    for _ in range(check_count(topic_count - 1, frame, position)):
        topic: str | bytes
        if version >= TOPIC_IDS_FROM:
            topic = bytes(frame[position : position + 16])
            position += 16
        else:
            size, position = read_varint(frame, position)
            topic, position = text(frame, position, size - 1)
        part_count, position = read_varint(frame, position)
        for _ in range(check_count(part_count - 1, frame, position)):
            index = _INT.unpack_from(frame, position)[0]
            size, position = read_varint(frame, position + 4)
            records, position = records_at(frame, position, size - 1)
            position = skip_tags(frame, position)
            parts.append(ProducePart(topic, index, records))
        position = skip_tags(frame, position)
    skip_tags(frame, position)
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
