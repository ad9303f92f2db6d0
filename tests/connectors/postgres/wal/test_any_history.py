"""Whatever happens on the server, and however the network cuts it, both decoders tell it alike."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.postgres.wal.kernels import Kernels, kernels_of
from headwater.connectors.postgres.wal.wal_batch import Relation
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.speed import Speed
from tests.connectors.postgres.wal import message_encoder
from tests.connectors.postgres.wal.decoder_input import (
    Change,
    Emptied,
    Event,
    Inbox,
    Said,
    events_of,
    slices_of,
)
from tests.connectors.postgres.wal.message_encoder import KEPT, Kept, Transaction, logged, table

pytestmark = pytest.mark.property

SHAPES = [
    (table(1, "a"), table(1, "a", "b")),
    (table(2, "a", "b", "c"), table(2, "a", "c")),
    (table(3), table(3, "x")),
]

WAYS: tuple[tuple[Speed, int, int], ...] = (
    ("python", 0, 0),
    ("fast", 0, 0),
    ("fast", 8, 0),
    ("python", 8, 1_000),
)
"""The speed, how many rows are few, and how many messages."""

texts = st.none() | st.text(max_size=9)


class Server:
    """Makes a history up, writes it as a server would, and remembers what it means."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._told: dict[int, Relation] = {}
        self.stream, self.events = b"", list[Event]()
        self.end = 0

    def transaction(self, number: int) -> None:
        messages, events = list[bytes](), list[Event]()
        transaction = Transaction(number, messages)
        for _ in range(self._draw(st.integers(0, 5))):
            self._step(transaction, messages, events)
        self.stream += transaction.written()
        self.events += events
        self.end = transaction.end_lsn

    def between(self, number: int) -> None:
        """What may stand outside of transactions."""
        lsn = number * 10_000 + 9_500
        match self._draw(st.sampled_from(["nothing", "keepalive", "message"])):
            case "keepalive":
                self.stream += message_encoder.keepalive(lsn)
                self.end = lsn
            case "message":
                said = message_encoder.message("out", b"side", lsn=lsn, is_transactional=False)
                self.stream += logged(said, lsn)
                self.events.append(Said("out", b"side", lsn, None, 0))
                self.end = lsn

    def _step(self, transaction: Transaction, messages: list[bytes], events: list[Event]) -> None:
        shape = self._draw(st.sampled_from(self._draw(st.sampled_from(SHAPES))))
        if self._told.get(shape.oid) != shape or self._draw(st.booleans()):
            messages.append(message_encoder.relation(shape))
            self._told[shape.oid] = shape
        lsn, xid, index = transaction.lsn(len(messages)), transaction.number, len(events)
        match self._draw(st.sampled_from("IIUUDTM")):
            case "M":
                messages.append(
                    message_encoder.message("in", b"side", lsn=lsn, is_transactional=True)
                )
                events.append(Said("in", b"side", lsn, xid, index))
            case "T":
                messages.append(message_encoder.truncate(shape.oid))
                events.append(Emptied((shape.name,), lsn, xid, index))
            case operation:
                self._row(shape, operation, messages, events, lsn, xid, index)

    def _row(
        self,
        shape: Relation,
        operation: str,
        messages: list[bytes],
        events: list[Event],
        lsn: int,
        xid: int,
        index: int,
    ) -> None:
        width = len(shape.columns)
        row = self._draw(st.lists(texts, min_size=width, max_size=width))
        kept: tuple[int, ...] = ()
        old, kind = None, ""
        if operation == "I":
            messages.append(message_encoder.insert(shape.oid, row))
        elif operation == "D":
            kind = self._draw(st.sampled_from("KO"))
            messages.append(message_encoder.delete(shape.oid, row, kind=kind.encode()))
        else:
            kept = tuple(sorted(self._draw(st.sets(st.integers(0, width - 1))))) if width else ()
            kind = self._draw(st.sampled_from(["", "K", "O"]))
            old = self._draw(st.lists(texts, min_size=width, max_size=width)) if kind else None
            sent: list[str | Kept | None] = list(row)
            for place in kept:
                sent[place], row[place] = KEPT, None
            before = {"K": "key", "O": "old"}
            more: dict[str, Any] = {before[kind]: old} if kind else {}
            messages.append(message_encoder.update(shape.oid, sent, **more))
        seen = None if old is None else tuple(old)
        events.append(Change(shape.name, operation, tuple(row), kept, seen, kind, lsn, xid, index))


@st.composite
def histories(draw: Any) -> Server:
    server = Server(draw)
    for number in range(1, draw(st.integers(1, 3)) + 1):
        server.transaction(number)
        server.between(number)
    return server


def in_order(events: Sequence[Event]) -> list[Event]:
    """By their place in the log: what wal_batches group by table is then as it happened."""
    return sorted(events, key=lambda each: each.lsn)


@given(
    server=histories(),
    sizes=st.lists(st.integers(0, 400), max_size=8),
    may_cut=st.booleans(),
    speed=st.sampled_from(["python", "fast"]),
    few_rows=st.sampled_from([0, 2, 8]),
    few_frames=st.sampled_from([0, 4, 1_000]),
)
def test_every_history_is_told_whole_and_in_order(
    server: Server, sizes: list[int], may_cut: bool, speed: Any, few_rows: int, few_frames: int
) -> None:
    inbox = Inbox(kernels_of(speed, few_rows=few_rows), few_frames=few_frames)

    wal_batches = list(inbox.wal_batches(slices_of(server.stream, sizes), may_cut=may_cut))

    told = events_of(wal_batches)
    assert in_order(told) == server.events
    for name in {each.table for each in told if isinstance(each, Change)}:
        places = [each.lsn for each in told if concerns(each, name)]
        assert places == sorted(places), "changes of one table keep their order"
    assert wal_batches[-1].position == server.end
    if not may_cut:
        assert None not in [each.position for each in wal_batches]


def concerns(event: Event, name: str) -> bool:
    match event:
        case Change():
            return event.table == name
        case Emptied():
            return name in event.tables
    return False


@given(server=histories(), damage=st.data())
def test_a_damaged_history_is_read_alike_or_refused_by_both(
    server: Server, damage: st.DataObject
) -> None:
    content = bytearray(server.stream)
    for _ in range(damage.draw(st.integers(1, 3))):
        content[damage.draw(st.integers(0, len(content) - 1))] = damage.draw(st.integers(0, 255))

    all_alike = [
        outcome(kernels_of(speed, few_rows=few_rows), bytes(content), few_frames)
        for speed, few_rows, few_frames in WAYS
    ]

    assert all(each == all_alike[0] for each in all_alike)


def outcome(kernels: Kernels, content: bytes, few_frames: int) -> tuple[list[Event], str]:
    told, inbox = list[Event](), Inbox(kernels, few_frames=few_frames)
    try:
        for wal_batch in inbox.wal_batches([content], may_cut=True):
            told += events_of([wal_batch])
    except DecodeError as error:
        return told, str(error)
    return told, ""
