"""Decodes the stream of a replication slot: frames and pgoutput's messages into WAL batches."""

from contextlib import suppress
from dataclasses import dataclass, replace
from struct import Struct

import numpy as np
import pyarrow as pa

from headwater.connectors.postgres.wal.kernels import (
    FOREIGN,
    TEXT,
    UNCHANGED,
    FieldSpans,
    Kernels,
    all_values,
    places_of,
)
from headwater.connectors.postgres.wal.messages import (
    BEGIN,
    COMMIT,
    FRAME_BYTES_MAX,
    HEAD_BYTES,
    INSERT,
    IS_END,
    IS_RARE,
    IS_ROW,
    KEY,
    NEW,
    OLD,
    OUT_OF_STEP,
    RELATION,
    TRUNCATE,
    UPDATE,
    MessageColumns,
    OpenTransactionState,
    read_message,
    read_relation,
    read_truncate,
)
from headwater.connectors.postgres.wal.small_batch_decoder import (
    FEW_FRAMES,
    Unusual,
    few_transactions,
    whole_of_few,
)
from headwater.connectors.postgres.wal.wal_batch import (
    Relation,
    RowChanges,
    Transactions,
    TruncateMessage,
    WalBatch,
    WalEvent,
    WalMessage,
)
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.foundation.errors import DecodeError

_KEEPALIVE = Struct(">cIcqqB")
"""A keepalive with its frame: the server's position and clock, and whether it wants an answer."""
_NO_TIMES = np.empty(0, np.int64)
_NO_TRANSACTIONS = Transactions(_NO_TIMES, _NO_TIMES, _NO_TIMES, _NO_TIMES, _NO_TIMES)


@dataclass(frozen=True, slots=True)
class BatchEnd:
    """The server's last frame: its letter and content."""

    letter: str
    content: bytes


class PgoutputDecoder:
    """Keeps the state of one connection: relations, and the open transaction.

    It supports protocols 1 and 2, without transactions that are streamed before they commit. The
    caller keeps the bytes, and passes them from the first unused one on.
    """

    def __init__(self, kernels: Kernels, *, few_frames: int = FEW_FRAMES) -> None:
        self._kernels, self._few_frames = kernels, few_frames
        self._relations: dict[int, Relation] = {}
        self._open: OpenTransactionState | None = None
        self._position = 0
        self._starts, self._tags = np.empty(0, np.int64), np.empty(0, np.uint8)
        self._walked = 0
        self._whole = 0  # frames up to the end of the last whole transaction
        self._goes_on = False
        self._lone: tuple[int, bool] | None = None
        """A keepalive alone: the server sends one after each unconfirmed transaction, and reading
        it must not delay that transaction."""
        self.ending: BatchEnd | None = None
        self.bytes_wanted = 0
        """The size of the incomplete frame in the buffer, as far as it is known."""
        self.bytes_used = 0
        """The size of the last WAL batch in the buffer."""

    def look(self, buffer: UInt8Array, filled: int) -> None:
        """Finds the whole frames among the bytes up to `filled`."""
        if self.ending is not None:
            return
        self._lone = self._lone_keepalive(buffer, filled)
        if self._lone is not None:
            return
        starts, tags, self._walked = self._kernels.walk(buffer, self._walked, filled)
        is_end = IS_END[tags]
        if is_end.any():
            at = int(is_end.argmax())
            stop = starts[at + 1] if at + 1 < len(starts) else self._walked
            content = buffer[starts[at] + 5 : stop].tobytes()
            self.ending = BatchEnd(chr(int(tags[at]) & ~FOREIGN), content)
            starts, tags, self._walked = starts[:at], tags[:at], int(starts[at])
        self.bytes_wanted = self._choose_wanted(buffer, filled)
        whole, self._goes_on = self._bound(tags)
        if whole:
            self._whole = len(self._starts) + whole
        self._starts = np.concatenate([self._starts, starts])
        self._tags = np.concatenate([self._tags, tags])

    def _bound(self, tags: UInt8Array) -> tuple[int, bool]:
        """Returns the number of frames up to which all transactions are whole, and whether one is
        open after the last."""
        if len(tags) <= self._few_frames:
            return whole_of_few(tags, self._goes_on)
        steps = (tags == BEGIN).astype(np.int64) - (tags == COMMIT)
        depth = int(self._goes_on) + np.cumsum(steps)
        if ((depth < 0) | (depth > 1)).any():
            raise DecodeError(OUT_OF_STEP)
        closed = np.flatnonzero(depth == 0)
        return (int(closed[-1]) + 1 if len(closed) else 0), bool(depth[-1])

    def _lone_keepalive(self, buffer: UInt8Array, filled: int) -> tuple[int, bool] | None:
        if filled != _KEEPALIVE.size or self._walked or self._goes_on or self.has_any:
            return None
        letter, length, kind, reached, _, wants = _KEEPALIVE.unpack_from(buffer.data)
        is_one = letter == b"d" and kind == b"k" and length == _KEEPALIVE.size - 1
        return (reached, wants != 0) if is_one else None

    def _choose_wanted(self, buffer: UInt8Array, filled: int) -> int:
        if self.ending is not None or filled - self._walked < 5:
            return 0
        length = int.from_bytes(buffer[self._walked + 1 : self._walked + 5].tobytes(), "big")
        if not 4 <= length < FRAME_BYTES_MAX:
            raise DecodeError("a frame of the stream has an impossible length", length=length)
        return self._walked + 1 + length

    @property
    def has_whole(self) -> bool:
        """Whether there is a WAL batch that cuts no transaction."""
        return self._whole > 0 or self._lone is not None

    @property
    def has_any(self) -> bool:
        """Whether there is at least one message, possibly of an open transaction."""
        return len(self._starts) > 0

    def decode(self, buffer: UInt8Array, *, may_cut: bool) -> WalBatch | None:
        """Returns the next WAL batch, of `bytes_used` bytes. With `may_cut` it may end inside of a
        transaction if there is nothing else."""
        self.bytes_used = 0
        if self._lone is not None:
            (reached, is_wanted), self._lone = self._lone, None
            self._position = max(self._position, reached)
            self.bytes_used = _KEEPALIVE.size
            return WalBatch(_NO_TRANSACTIONS, (), self._position, is_wanted=is_wanted)
        count = self._whole or (len(self._starts) if may_cut else 0)
        if not count:
            return None
        used = int(self._starts[count]) if count < len(self._starts) else self._walked
        starts, tags = self._starts[:count], self._tags[:count]
        wal_batch = None
        if count <= self._few_frames and self._open is None:
            content = buffer[:used].tobytes()
            with suppress(Unusual):
                wal_batch = few_transactions(
                    content, starts.tolist(), tags.tolist(), self._relations, self._position
                )
        if wal_batch is None:
            wal_batch = self._wal_batch(MessageColumns(buffer, starts, tags, used))
        if wal_batch.position is not None:
            self._position = wal_batch.position
        self._starts, self._tags = self._starts[count:] - used, self._tags[count:]
        self._walked, self._whole = self._walked - used, 0
        self.bytes_wanted = max(0, self.bytes_wanted - used)
        self.bytes_used = used
        return wal_batch

    def _wal_batch(self, messages: MessageColumns) -> WalBatch:
        messages.check()
        transactions, opened = messages.transactions(self._open)
        counted = messages.has_index()
        is_open = messages.goes_on(self._open is not None, counted)
        before = messages.counted_before(counted, opened, self._open)
        events = self._events(messages, opened, before)
        ends = transactions.end_lsns[transactions.end_lsns >= 0]
        kept_alive, is_wanted = messages.keepalives(is_open)
        said = [each.lsn for each in events if isinstance(each, WalMessage)]
        self._position = max([self._position, *ends.tolist()[-1:], *kept_alive, *said])
        self._open = None
        if is_open[-1]:
            self._open = OpenTransactionState(
                int(transactions.xids[-1]),
                int(transactions.commit_lsns[-1]),
                int(transactions.committed_us[-1]),
                int(transactions.begin_lsns[-1]),
                int(before[-1] + counted[-1]),
            )
        return WalBatch(
            transactions,
            tuple(events),
            None if self._open else self._position,
            is_wanted=is_wanted,
        )

    def _events(
        self, messages: MessageColumns, opened: Int64Array, indexes: Int64Array
    ) -> list[WalEvent]:
        """Returns rows by table, with a break at each truncate or new schema of a table."""
        events, since, tags = list[WalEvent](), 0, messages.tags
        for at in np.flatnonzero(IS_RARE[tags]).tolist():
            body = messages.body(at)
            tag = tags[at]
            if tag == RELATION:
                relation = read_relation(body)
                known = self._relations.get(relation.oid)
                if known is not None and known != relation:
                    events += self._rows(messages, since, at, opened, indexes)
                    since = at
                self._relations[relation.oid] = relation
            elif tag == TRUNCATE:
                events += self._rows(messages, since, at, opened, indexes)
                since = at
                truncated = tuple(self._relation(oid) for oid in read_truncate(body))
                lsn, transaction = int(messages.lsns([at])[0]), int(opened[at])
                events.append(TruncateMessage(truncated, lsn, transaction, int(indexes[at])))
            else:
                events.append(_message(body, int(opened[at]), int(indexes[at])))
        return events + self._rows(messages, since, len(tags), opened, indexes)

    def _relation(self, oid: int) -> Relation:
        found = self._relations.get(oid)
        if found is None:
            raise DecodeError("the stream changes a table that it never described", oid=oid)
        return found

    def _rows(
        self,
        messages: MessageColumns,
        begin: int,
        end: int,
        opened: Int64Array,
        indexes: Int64Array,
    ) -> list[RowChanges]:
        rows = np.flatnonzero(IS_ROW[messages.tags[begin:end]]) + begin
        if not len(rows):
            return []
        found = list[RowChanges]()
        for oid, members in messages.by_relation(rows):
            changes = self._changes(messages, self._relation(oid), members)
            found.append(replace(changes, transactions=opened[members], indexes=indexes[members]))
        return found

    def _changes(
        self, messages: MessageColumns, relation: Relation, rows: Int64Array
    ) -> RowChanges:
        operations, kinds = messages.tags[rows], messages.kinds(rows)
        columns = len(relation.columns)
        old_kinds = np.where(kinds == NEW, 0, kinds).astype(np.uint8)
        is_old_known = (operations == UPDATE) & (old_kinds != 0)
        _check_kinds(operations, kinds)
        starts, old, is_old_bad = messages.starts[rows] + HEAD_BYTES + 6, None, False
        if is_old_known.any():
            with_old = np.flatnonzero(is_old_known)
            stops = messages.stops[rows[with_old]]
            spans = self._spans(messages, starts[with_old], stops, columns)
            if not (messages.buffer[spans.after] == NEW).all():
                raise DecodeError("an update in the stream has no new row")
            starts[with_old] = spans.after + 1
            if (starts >= messages.stops[rows]).any():
                raise DecodeError("a row of the stream ends too early")
            old, is_old_bad = self._old(messages, spans, is_old_known)
        spans = self._spans(messages, starts, messages.stops[rows], columns)
        if not np.array_equal(spans.after, messages.stops[rows]):
            raise DecodeError("a row of the stream does not end where its message does")
        texts, is_bad = self._texts(messages, spans)
        unknown = np.empty(0, np.int64)
        return RowChanges(
            relation,
            operations,
            texts,
            _find_unchanged(spans),
            old,
            old_kinds,
            messages.lsns(rows),
            transactions=unknown,
            indexes=unknown,
            has_unreadable=is_bad or is_old_bad,
        )

    def _spans(
        self, messages: MessageColumns, starts: Int64Array, stops: Int64Array, columns: int
    ) -> FieldSpans:
        """Splits rows from their number of columns on."""
        counts = messages.shorts(starts)
        if (counts != columns).any():
            raise DecodeError(
                "a row of the stream has another number of values than its table columns"
            )
        spans = self._kernels.spans(messages.buffer, starts + 2, stops, columns)
        if (spans.after < 0).any():
            raise DecodeError("a row of the stream breaks its own format")
        return spans

    def _texts(
        self, messages: MessageColumns, spans: FieldSpans
    ) -> tuple[tuple[pa.StringArray, ...], bool]:
        """Returns the texts, and whether one of them is unreadable."""
        gaps = np.flatnonzero(~spans.are_texts).tolist()
        missing = {column: spans.marks[column] != TEXT for column in gaps}
        if not spans.marks.size:
            return (), False
        return all_values(self._kernels, messages.buffer, spans.bounds, missing)

    def _old(
        self, messages: MessageColumns, spans: FieldSpans, is_known: BoolArray
    ) -> tuple[tuple[pa.StringArray, ...], bool]:
        """Returns old rows beside the new ones, null if there is none."""
        found, is_bad = self._texts(messages, spans)
        if is_known.all():
            return found, is_bad
        places = places_of(is_known, ~is_known)
        return tuple(values.take(places) for values in found), is_bad


def _message(body: bytes, transaction: int, index: int) -> WalMessage:
    found = read_message(body)
    is_inside = found.is_transactional
    return WalMessage(
        found.prefix,
        found.content,
        found.lsn,
        transaction if is_inside else None,
        index if is_inside else 0,
        transaction,
    )


def _check_kinds(operations: UInt8Array, kinds: UInt8Array) -> None:
    is_new, is_old = kinds == NEW, (kinds == KEY) | (kinds == OLD)
    fits = np.where(operations == INSERT, is_new, is_old | (is_new & (operations == UPDATE)))
    if not fits.all():
        raise DecodeError("a change in the stream has neither a new row nor an old one")


def _find_unchanged(spans: FieldSpans) -> dict[int, BoolArray]:
    found = {
        column: spans.marks[column] == UNCHANGED
        for column in np.flatnonzero(~spans.are_texts).tolist()
    }
    return {column: was_kept for column, was_kept in found.items() if was_kept.any()}
