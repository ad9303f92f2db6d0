"""Bytes of a stream into a decoder in pieces, and wal_batches into events that can be compared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.connectors.postgres.wal.kernels import SLACK_BYTES, Kernels
from headwater.connectors.postgres.wal.pgoutput import PgoutputDecoder
from headwater.connectors.postgres.wal.small_batch_decoder import FEW_FRAMES
from headwater.connectors.postgres.wal.wal_batch import (
    RowChanges,
    TruncateMessage,
    WalBatch,
    WalMessage,
)


@dataclass(frozen=True, slots=True)
class Change:
    table: str
    operation: str
    values: tuple[str | None, ...]
    kept: tuple[int, ...]
    """Columns that an update left as they were."""
    old: tuple[str | None, ...] | None
    old_kind: str
    lsn: int
    xid: int
    index: int


@dataclass(frozen=True, slots=True)
class Emptied:
    tables: tuple[str, ...]
    lsn: int
    xid: int
    index: int


@dataclass(frozen=True, slots=True)
class Said:
    prefix: str
    content: bytes
    lsn: int
    xid: int | None
    index: int


Event = Change | Emptied | Said


class Inbox:
    """A buffer that is filled and emptied as the stream's own is."""

    def __init__(
        self, kernels: Kernels, capacity: int = 1 << 16, *, few_frames: int = FEW_FRAMES
    ) -> None:
        self.decoder = PgoutputDecoder(kernels, few_frames=few_frames)
        self.buffer = np.zeros(capacity + SLACK_BYTES, np.uint8)
        self.filled = 0

    def wal_batches(self, pieces: Iterable[bytes], *, may_cut: bool = False) -> Iterator[WalBatch]:
        """One after each piece that completes any."""
        for piece in pieces:
            self.buffer[self.filled : self.filled + len(piece)] = np.frombuffer(piece, np.uint8)
            self.filled += len(piece)
            self.decoder.look(self.buffer, self.filled)
            wal_batch = self.decoder.decode(self.buffer, may_cut=may_cut)
            rest = self.buffer[self.decoder.bytes_used : self.filled].copy()
            self.filled = len(rest)
            self.buffer[: self.filled] = rest
            self.buffer[self.filled :] = 0xFF  # nothing may be learnt from what is not there
            if wal_batch is not None:
                yield wal_batch


def slices_of(content: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield content[at : at + size]
        at += size
    yield content[at:]


def decoded(kernels: Kernels, content: bytes) -> WalBatch:
    [wal_batch] = Inbox(kernels, len(content)).wal_batches([content])
    return wal_batch


def events_of(wal_batches: Iterable[WalBatch]) -> list[Event]:
    return [
        event
        for wal_batch in wal_batches
        for each in wal_batch.events
        for event in _events(each, wal_batch)
    ]


def _events(event: Any, wal_batch: WalBatch) -> Iterator[Event]:
    xids = wal_batch.transactions.xids.tolist()
    match event:
        case RowChanges():
            yield from _changes(event, xids)
        case TruncateMessage():
            names = tuple(each.name for each in event.relations)
            yield Emptied(names, event.lsn, xids[event.transaction], event.index)
        case WalMessage():
            xid = None if event.transaction is None else xids[event.transaction]
            yield Said(event.prefix, event.content, event.lsn, xid, event.index)


def _changes(part: RowChanges, xids: list[int]) -> Iterator[Change]:
    assert {len(part)} == {
        len(each) for each in (*part.rows, part.old_kinds, part.lsns, part.indexes)
    }, "every column is as long as there are changes"
    values = [column.to_pylist() for column in part.rows]
    old = None if part.old is None else [column.to_pylist() for column in part.old]
    for row in range(len(part)):
        kind = chr(part.old_kinds[row])
        has_old = old is not None and chr(part.operations[row]) == "U" and kind != "\0"
        yield Change(
            part.relation.name,
            chr(part.operations[row]),
            tuple(column[row] for column in values),
            tuple(place for place, mask in sorted(part.unchanged.items()) if mask[row]),
            tuple(column[row] for column in old) if old is not None and has_old else None,
            kind if kind != "\0" else "",
            int(part.lsns[row]),
            xids[part.transactions[row]],
            int(part.indexes[row]),
        )
