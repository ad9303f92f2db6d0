"""Streams and rows of COPY into plain and compiled decoders, which have to agree on them."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from headwater.connectors.postgres.snapshot.copy import decode_tuples, tuples_of
from headwater.connectors.postgres.wal.kernels import SLACK_BYTES, Kernels, kernels_of
from headwater.core_log.foundation.errors import DecodeError
from tests.connectors.postgres.wal import message_encoder
from tests.connectors.postgres.wal.decoder_input import Event, Inbox, events_of
from tests.connectors.postgres.wal.message_encoder import KEPT, Transaction, table

COPY, CUT = 1, 2
HEAD_BYTES, ARE_TEXTS = 5, (True, False)
Told = TypeVar("Told")


def seeds() -> list[bytes]:
    described = [
        message_encoder.relation(table(7, "a", "b")),
        message_encoder.relation(table(8, "c")),
    ]
    changes = [
        message_encoder.insert(7, ("1", None)),
        message_encoder.update(7, ("1", KEPT), old=("1", "é")),
        message_encoder.delete(8, ("1",)),
        message_encoder.truncate(7, 8),
        message_encoder.message("p", b"content", lsn=5, is_transactional=True),
    ]
    row = b"\0\2\0\0\0\1a\xff\xff\xff\xff"
    stream = Transaction(1, [*described, *changes]).written()
    more = Transaction(2, changes).written()
    return [
        bytes([0]) + stream,
        bytes([CUT]) + stream + message_encoder.keepalive(5, wants_answer=True) + more,
        bytes([0]) + stream + message_encoder.frame(b"E", b"C57P01\0\0"),
        bytes([COPY])
        + message_encoder.frame(b"d", row)
        + message_encoder.frame(b"d", row + row)
        + b"d\0\0",
    ]


class Target:
    def __init__(self) -> None:
        self._both = kernels_of("python"), kernels_of("fast")

    def __call__(self, data: bytes) -> None:
        head, content = data[:1], data[1:]
        read = copied if head == bytes([COPY]) else streamed(may_cut=head == bytes([CUT]))
        plain, compiled = (outcome(read, content, kernels) for kernels in self._both)
        assert plain == compiled, "the decoders disagree"


def streamed(*, may_cut: bool) -> Callable[[bytes, Kernels], list[Event]]:
    def read(content: bytes, kernels: Kernels) -> list[Event]:
        half = len(content) // 2
        inbox = Inbox(kernels, len(content))
        return events_of(inbox.wal_batches([content[:half], content[half:]], may_cut=may_cut))

    return read


def copied(content: bytes, kernels: Kernels) -> list[list[object]]:
    buffer = np.frombuffer(content + bytes(SLACK_BYTES), np.uint8)
    frames = kernels.walk(buffer, 0, len(content))
    if not len(frames.starts):
        return []
    stops = np.append(frames.starts[1:], frames.stop)
    tuples = tuples_of(buffer, frames.starts + HEAD_BYTES, stops)
    found = decode_tuples(tuples, ARE_TEXTS, kernels).columns
    return [each.to_pylist() for each in found]


def outcome(read: Callable[[bytes, Kernels], Told], content: bytes, kernels: Kernels) -> Told | str:
    try:
        return read(content, kernels)
    except DecodeError as error:
        return str(error)
