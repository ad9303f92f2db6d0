"""Decodes the stream of a replication slot: frames and pgoutput's messages into bursts."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from connectors.postgres.wal.burst import (
    Burst,
    Bytes,
    Event,
    Int64s,
    Mask,
    Message,
    Relation,
    RowChanges,
    Transactions,
    Truncated,
)
from connectors.postgres.wal.kernels import FOREIGN, TEXT, UNCHANGED, Kernels, Spans
from connectors.postgres.wal.relations import read_message, read_relation, read_truncate
from connectors.postgres.wal.texts import places_of
from core_log.errors import DecodeError

FRAME_BYTES_MAX = 1 << 30  # the server can build no larger message
HEAD_BYTES, LETTER_BYTES = 30, 1
OUT_OF_STEP = "transactions of the stream do not follow one another"
EPOCH_US = 946_684_800_000_000  # 2000-01-01, from where PostgreSQL counts

BEGIN, COMMIT, INSERT, UPDATE, DELETE, TRUNCATE, RELATION, MESSAGE, TYPE, ORIGIN = b"BCIUDTRMYO"
KEEPALIVE, NEW, KEY, OLD = b"kNKO"
NOTICE, PARAMETER = (FOREIGN | each for each in b"NS")
COMMIT_END, COMMIT_BYTES = 9, 25
"""In a commit, behind its letter: flags, its place, the place behind it, its time."""

LEAST_BYTES = np.full(256, FRAME_BYTES_MAX, np.int64)
"""How long a frame is at least, by its tag."""
for _tag, _least in {
    BEGIN: 20, COMMIT: COMMIT_BYTES, INSERT: 7, UPDATE: 7, DELETE: 7, TRUNCATE: 5, RELATION: 9,
    MESSAGE: 14, TYPE: 6, ORIGIN: 9,
}.items():  # fmt: skip
    LEAST_BYTES[_tag] = HEAD_BYTES + LETTER_BYTES + _least
LEAST_BYTES[KEEPALIVE] = 23
LEAST_BYTES[[NOTICE, PARAMETER]] = 5


def _among(tags: bytes) -> Mask:
    found = np.zeros(256, np.bool_)
    found[list(tags)] = True
    return found


IS_ROW, IS_RARE = _among(b"IUD"), _among(b"RTM")
NEEDS_TRANSACTION, IS_COUNTED = _among(b"IUDTRYO"), _among(b"IUDT")
IS_END = np.arange(256) >= FOREIGN
IS_END[[NOTICE, PARAMETER]] = False  # they may come at any time


@dataclass(frozen=True, slots=True)
class Ending:
    """The server's last word: the letter of a frame, and what is in it."""

    letter: str
    content: bytes


@dataclass(frozen=True, slots=True)
class _Open:
    """The transaction of which a burst left something for the next."""

    xid: int
    commit_lsn: int
    committed_us: int
    counted: int


class Decoder:
    """Keeps what one connection has been told: relations, and the transaction that goes on.

    It speaks protocol 1 and 2, without transactions that are streamed before they commit. The bytes stay with the caller, who shows them from the first not yet used one on.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._relations: dict[int, Relation] = {}
        self._open: _Open | None = None
        self._position = 0
        self._starts, self._tags = np.empty(0, np.int64), np.empty(0, np.uint8)
        self._walked = 0
        self._whole = 0  # frames up to where no transaction goes on
        self._goes_on = False
        self.ending: Ending | None = None
        self.bytes_wanted = 0
        """How much of the buffer the frame takes that has not come whole, as far as is known."""

    def look(self, buffer: Bytes, filled: int) -> None:
        """Finds out what is whole among the bytes up to `filled`."""
        if self.ending is not None:
            return
        starts, tags, self._walked = self._kernels.walk(buffer, self._walked, filled)
        is_end = IS_END[tags]
        if is_end.any():
            at = int(is_end.argmax())
            stop = starts[at + 1] if at + 1 < len(starts) else self._walked
            content = buffer[starts[at] + 5 : stop].tobytes()
            self.ending = Ending(chr(int(tags[at]) & ~FOREIGN), content)
            starts, tags, self._walked = starts[:at], tags[:at], int(starts[at])
        self.bytes_wanted = self._wanted(buffer, filled)
        steps = (tags == BEGIN).astype(np.int64) - (tags == COMMIT)
        depth = int(self._goes_on) + np.cumsum(steps)
        if ((depth < 0) | (depth > 1)).any():
            raise DecodeError(OUT_OF_STEP)
        closed = np.flatnonzero(depth == 0)
        if len(closed):
            self._whole = len(self._starts) + int(closed[-1]) + 1
        self._goes_on = bool(self._goes_on + steps.sum())
        self._starts = np.concatenate([self._starts, starts])
        self._tags = np.concatenate([self._tags, tags])

    def _wanted(self, buffer: Bytes, filled: int) -> int:
        if self.ending is not None or filled - self._walked < 5:
            return 0
        length = int.from_bytes(buffer[self._walked + 1 : self._walked + 5].tobytes(), "big")
        if not 4 <= length < FRAME_BYTES_MAX:
            raise DecodeError("a frame of the stream has an impossible length", length=length)
        return self._walked + 1 + length

    @property
    def has_whole(self) -> bool:
        """Whether anything is there that can be a burst without cutting a transaction."""
        return self._whole > 0

    @property
    def has_any(self) -> bool:
        """Whether at least one message is there, though of a transaction that goes on."""
        return len(self._starts) > 0

    def decode(self, buffer: Bytes, *, may_cut: bool) -> tuple[Burst | None, int]:
        """The next burst, and how many bytes it took. With `may_cut` it may end inside of a
        transaction, should there be nothing else."""
        count = self._whole or (len(self._starts) if may_cut else 0)
        if not count:
            return None, 0
        used = int(self._starts[count]) if count < len(self._starts) else self._walked
        stretch = _Stretch(buffer, self._starts[:count], self._tags[:count], used)
        burst = self._burst(stretch)
        self._starts, self._tags = self._starts[count:] - used, self._tags[count:]
        self._walked, self._whole = self._walked - used, 0
        self.bytes_wanted = max(0, self.bytes_wanted - used)
        return burst, used

    def _burst(self, stretch: "_Stretch") -> Burst:
        stretch.check()
        transactions, opened = stretch.transactions(self._open)
        is_open = stretch.goes_on(self._open is not None)
        counted = stretch.counted()
        before = stretch.counted_before(counted, opened, self._open)
        events = self._events(stretch, opened, before)
        ends = transactions.end_lsns[transactions.end_lsns >= 0]
        kept_alive, is_wanted = stretch.keepalives(is_open)
        said = [each.lsn for each in events if isinstance(each, Message)]
        self._position = max([self._position, *ends.tolist()[-1:], *kept_alive, *said])
        self._open = None
        if is_open[-1]:
            self._open = _Open(
                int(transactions.xids[-1]),
                int(transactions.commit_lsns[-1]),
                int(transactions.committed_us[-1]),
                int(before[-1] + counted[-1]),
            )
        return Burst(
            transactions,
            tuple(events),
            None if self._open else self._position,
            is_wanted=is_wanted,
        )

    def _events(self, stretch: "_Stretch", opened: Int64s, indexes: Int64s) -> list[Event]:
        """Rows table by table, with a break wherever a truncate or a new form of a table is."""
        events, since, tags = list[Event](), 0, stretch.tags
        for at in np.flatnonzero(IS_RARE[tags]).tolist():
            body = stretch.body(at)
            match tags[at]:
                case 0x52:  # R
                    relation = read_relation(body)
                    known = self._relations.get(relation.oid)
                    if known is not None and known != relation:
                        events += self._rows(stretch, since, at, opened, indexes)
                        since = at
                    self._relations[relation.oid] = relation
                case 0x54:  # T
                    events += self._rows(stretch, since, at, opened, indexes)
                    since = at
                    truncated = tuple(self._relation(oid) for oid in read_truncate(body))
                    lsn, transaction = int(stretch.lsns([at])[0]), int(opened[at])
                    events.append(Truncated(truncated, lsn, transaction, int(indexes[at])))
                case _:
                    found = read_message(body)
                    is_inside, index = found.is_transactional, int(indexes[at])
                    events.append(
                        Message(
                            found.prefix,
                            found.content,
                            found.lsn,
                            int(opened[at]) if is_inside else None,
                            index if is_inside else 0,
                        )
                    )
        return events + self._rows(stretch, since, len(tags), opened, indexes)

    def _relation(self, oid: int) -> Relation:
        found = self._relations.get(oid)
        if found is None:
            raise DecodeError("the stream changes a table that it never described", oid=oid)
        return found

    def _rows(
        self, stretch: "_Stretch", begin: int, end: int, opened: Int64s, indexes: Int64s
    ) -> list[RowChanges]:
        rows = np.flatnonzero(IS_ROW[stretch.tags[begin:end]]) + begin
        if not len(rows):
            return []
        found = list[RowChanges]()
        for oid, members in stretch.by_relation(rows):
            changes = self._changes(stretch, self._relation(oid), members)
            found.append(replace(changes, transactions=opened[members], indexes=indexes[members]))
        return found

    def _changes(self, stretch: "_Stretch", relation: Relation, rows: Int64s) -> RowChanges:
        operations, kinds = stretch.tags[rows], stretch.kinds(rows)
        columns = len(relation.columns)
        old_kinds = np.where(kinds == NEW, 0, kinds).astype(np.uint8)
        is_old_known = (operations == UPDATE) & (old_kinds != 0)
        _check_kinds(operations, kinds)
        starts, old = stretch.starts[rows] + HEAD_BYTES + 6, None
        if is_old_known.any():
            with_old = np.flatnonzero(is_old_known)
            stops = stretch.stops[rows[with_old]]
            spans = self._spans(stretch, starts[with_old], stops, columns)
            if not (stretch.buffer[spans.after] == NEW).all():
                raise DecodeError("an update in the stream has no new row")
            starts[with_old] = spans.after + 1
            if (starts >= stretch.stops[rows]).any():
                raise DecodeError("a row of the stream ends too early")
            old = self._old(stretch, spans, is_old_known)
        spans = self._spans(stretch, starts, stretch.stops[rows], columns)
        if not np.array_equal(spans.after, stretch.stops[rows]):
            raise DecodeError("a row of the stream does not end where its message does")
        texts = self._texts(stretch, spans)
        unchanged = _unchanged(spans)
        lsns, unknown = stretch.lsns(rows), np.empty(0, np.int64)
        return RowChanges(
            relation, operations, texts, unchanged, old, old_kinds, lsns, unknown, unknown
        )

    def _spans(self, stretch: "_Stretch", starts: Int64s, stops: Int64s, columns: int) -> Spans:
        """Of rows from their count of columns on."""
        counts = stretch.shorts(starts)
        if (counts != columns).any():
            raise DecodeError("a row of the stream has not as many values as its table columns")
        spans = self._kernels.spans(stretch.buffer, starts + 2, stops, columns)
        if (spans.after < 0).any():
            raise DecodeError("a row of the stream breaks its own format")
        return spans

    def _texts(self, stretch: "_Stretch", spans: Spans) -> tuple[pa.StringArray, ...]:
        gaps = np.flatnonzero(~spans.are_texts).tolist()
        missing = {column: spans.marks[column] != TEXT for column in gaps}
        if not spans.marks.size:
            return ()
        return self._kernels.texts(stretch.buffer, spans.bounds, missing)

    def _old(self, stretch: "_Stretch", spans: Spans, is_known: Mask) -> tuple[pa.StringArray, ...]:
        """Old rows beside the new ones, null where there is none."""
        found = self._texts(stretch, spans)
        if is_known.all():
            return found
        places = places_of(is_known, ~is_known)
        return tuple(values.take(places) for values in found)


def _check_kinds(operations: Bytes, kinds: Bytes) -> None:
    is_new, is_old = kinds == NEW, (kinds == KEY) | (kinds == OLD)
    fits = np.where(operations == INSERT, is_new, is_old | (is_new & (operations == UPDATE)))
    if not fits.all():
        raise DecodeError("a change in the stream brings neither a new row nor an old one")


def _unchanged(spans: Spans) -> dict[int, Mask]:
    found = {
        column: spans.marks[column] == UNCHANGED
        for column in np.flatnonzero(~spans.are_texts).tolist()
    }
    return {column: was_kept for column, was_kept in found.items() if was_kept.any()}


class _Stretch:
    """Whole frames, and their fields column by column."""

    def __init__(self, buffer: Bytes, starts: Int64s, tags: Bytes, stop: int) -> None:
        self.buffer, self.starts, self.tags = buffer, starts, tags
        self.stops = np.append(starts[1:], stop)
        self._numbers = np.ndarray((len(buffer) - 3,), ">u4", buffer, 0, (1,))
        self._longs = np.ndarray((len(buffer) - 7,), ">i8", buffer, 0, (1,))

    def check(self) -> None:
        if (self.stops - self.starts < LEAST_BYTES[self.tags]).any():
            raise DecodeError("a message of the stream is too short, or was not asked for")

    def goes_on(self, was_open: bool) -> Mask:
        """Whether, after each frame, a transaction goes on."""
        begins, commits = self.tags == BEGIN, self.tags == COMMIT
        depth = int(was_open) + np.cumsum(begins) - np.cumsum(commits)
        if (NEEDS_TRANSACTION[self.tags] & (depth != 1)).any():
            raise DecodeError(OUT_OF_STEP)
        return np.asarray(depth == 1)

    def transactions(self, carried: _Open | None) -> tuple[Transactions, Int64s]:
        """Those that are here, and per frame the one that it belongs to or that was last."""
        begins, commits = np.flatnonzero(self.tags == BEGIN), np.flatnonzero(self.tags == COMMIT)
        heads, tails = self.starts[begins] + HEAD_BYTES + 1, self.starts[commits] + HEAD_BYTES + 1
        xids = self._numbers[heads + 16].astype(np.int64)
        commit_lsns = self._longs[heads].astype(np.int64)
        committed_us = self._longs[heads + 8].astype(np.int64) + EPOCH_US
        if carried is not None:
            xids = np.append(carried.xid, xids)
            commit_lsns = np.append(carried.commit_lsn, commit_lsns)
            committed_us = np.append(carried.committed_us, committed_us)
        end_lsns = np.full(len(xids), -1, np.int64)
        end_lsns[: len(commits)] = self._longs[tails + COMMIT_END]
        opened = np.cumsum(self.tags == BEGIN) - (1 if carried is None else 0)
        return Transactions(xids, commit_lsns, end_lsns, committed_us), opened

    def counted(self) -> Mask:
        """What has an index in its transaction."""
        counted = IS_COUNTED[self.tags]
        messages = np.flatnonzero(self.tags == MESSAGE)
        counted[messages] = self.buffer[self.starts[messages] + HEAD_BYTES + 1] & 1
        return counted

    def counted_before(self, counted: Mask, opened: Int64s, carried: _Open | None) -> Int64s:
        """How many of its transaction came before each frame."""
        running: Int64s = np.cumsum(counted) - counted
        bases: Int64s = running[self.tags == BEGIN]
        if carried is not None:
            bases = np.append(-carried.counted, bases)
        if not len(bases):
            return running
        return np.asarray(running - bases[np.maximum(opened, 0)], np.int64)

    def keepalives(self, is_open: Mask) -> tuple[list[int], bool]:
        """Up to where the server has come, and whether it wants an answer."""
        places = self.starts[(self.tags == KEEPALIVE) & ~is_open] + 6
        reached = [int(self._longs[places[-1]])] if len(places) else []
        return reached, bool((self.buffer[places + 16] != 0).any())

    def by_relation(self, rows: Int64s) -> list[tuple[int, Int64s]]:
        oids = self._numbers[self.starts[rows] + HEAD_BYTES + 1].astype(np.int64)
        if (oids == oids[0]).all():
            return [(int(oids[0]), rows)]
        order = np.argsort(oids, kind="stable")
        oids, rows = oids[order], rows[order]
        firsts = np.flatnonzero(np.diff(oids, prepend=-1))
        groups = np.split(rows, firsts[1:])
        return list(zip(oids[firsts].tolist(), groups, strict=True))

    def kinds(self, rows: Int64s) -> Bytes:
        return self.buffer[self.starts[rows] + HEAD_BYTES + 5]

    def shorts(self, places: Int64s) -> Int64s:
        high, low = self.buffer[places].astype(np.int64), self.buffer[places + 1]
        return np.asarray((high << 8) | low, np.int64)

    def lsns(self, rows: Int64s | list[int]) -> Int64s:
        return self._longs[self.starts[rows] + 6].astype(np.int64)

    def body(self, at: int) -> bytes:
        """Of one message, what is behind its letter."""
        begin = int(self.starts[at]) + HEAD_BYTES + LETTER_BYTES
        return self.buffer[begin : int(self.stops[at])].tobytes()
