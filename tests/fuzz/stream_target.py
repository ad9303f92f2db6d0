"""Streams and lines of COPY into plain and compiled decoders, which have to agree on them."""

from collections.abc import Callable
from typing import TypeVar

from connectors.postgres.wal.choosing import kernels_of
from connectors.postgres.wal.copy_text import decode_copy
from connectors.postgres.wal.kernels import Kernels
from core_log.errors import DecodeError
from tests.connectors.postgres.wal import wire
from tests.connectors.postgres.wal.reading import Event, Inbox, events_of
from tests.connectors.postgres.wal.wire import KEPT, Transaction, table

COPY, CUT = 1, 2
COLUMNS = 2
Told = TypeVar("Told")


def seeds() -> list[bytes]:
    described = [wire.relation(table(7, "a", "b")), wire.relation(table(8, "c"))]
    changes = [
        wire.insert(7, ("1", None)),
        wire.update(7, ("1", KEPT), old=("1", "é")),
        wire.delete(8, ("1",)),
        wire.truncate(7, 8),
        wire.message("p", b"content", lsn=5, is_transactional=True),
    ]
    stream = Transaction(1, [*described, *changes]).written()
    more = Transaction(2, changes).written()
    return [
        bytes([0]) + stream,
        bytes([CUT]) + stream + wire.keepalive(5, wants_answer=True) + more,
        bytes([0]) + stream + wire.frame(b"E", b"C57P01\0\0"),
        bytes([COPY]) + b"a\\tb\t\\N\n\\\\\tc\n",
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
        return events_of(inbox.bursts([content[:half], content[half:]], may_cut=may_cut))

    return read


def copied(content: bytes, kernels: Kernels) -> list[list[str | None]]:
    return [each.to_pylist() for each in decode_copy(content, COLUMNS, kernels).columns]


def outcome(read: Callable[[bytes, Kernels], Told], content: bytes, kernels: Kernels) -> Told | str:
    try:
        return read(content, kernels)
    except DecodeError as error:
        return str(error)
