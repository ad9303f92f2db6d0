"""Converts a WAL batch to change batches: each change with its table and schema."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np

from headwater.connectors.postgres.events.captured_relation import CapturedRelation
from headwater.connectors.postgres.events.change_mapper import (
    KeyNotSent,
    moved_keys,
    to_table_changes,
    truncate,
)
from headwater.connectors.postgres.events.event_metadata import (
    CommitColumns,
    PlacedChanges,
    SourceOrigin,
    TransactionBlock,
    TransactionCounts,
    TransactionEvents,
)
from headwater.connectors.postgres.events.lookup import LookupConnection
from headwater.connectors.postgres.events.rejects import RejectedRows, split_rejects
from headwater.connectors.postgres.events.relation_cache import CapturedRelations
from headwater.connectors.postgres.events.repeated_keys import RepeatedKeys
from headwater.connectors.postgres.events.toast import ToastFiller
from headwater.connectors.postgres.publication.replica_identity import RefusedTable
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.slot.heartbeat import OUR_PREFIXES
from headwater.connectors.postgres.slot.resume_check import STREAM
from headwater.connectors.postgres.wal.wal_batch import (
    RowChanges,
    TruncateMessage,
    WalBatch,
    WalEvent,
    WalMessage,
)
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.changes import (
    ChangeBatch,
    EventMessages,
    TableChanges,
    source_times,
)
from headwater.core_log.model.table_schema import TableId

NO_TABLE = TableId("", "")
CONTENTS: Mapping[str, Callable[[bytes], str]] = {
    "bytes": lambda content: b64encode(content).decode(),
    "base64": lambda content: b64encode(content).decode(),
    "base64-url-safe": lambda content: urlsafe_b64encode(content).decode(),
    "hex": bytes.hex,
}
"""By the setting `binary` of the source."""
BATCH_BYTES = 32 << 20
"""A WAL batch that grew by values read later is split into several batches."""


@dataclass(frozen=True, slots=True)
class MessageTime:
    """The time of a message's transaction, or of the last one before it."""

    committed_us: int
    last_end: int | None
    xid: int | None


def messages(
    found: Iterable[tuple[WalMessage, MessageTime]],
    blocks: Iterable[Mapping[str, Any] | None],
    origin: SourceOrigin,
    *,
    form: str,
    now_ms: int,
) -> EventMessages | None:
    """Returns the events with Debezium's fields, in its order; `blocks` has the place of each in
    its transaction."""
    keys, values = [], []
    for (message, moment), place in zip(found, blocks, strict=True):
        before = message.lsn if message.transaction is None else moment.last_end
        block = origin.block(
            NO_TABLE,
            source_times(moment.committed_us),
            snapshot="false",
            sequence=sequence_text(before, message.lsn),
            xid=moment.xid,
            lsn=message.lsn,
        )
        said = {"prefix": message.prefix, "content": CONTENTS[form](message.content)}
        keys.append({"prefix": message.prefix})
        values.append(
            {"op": "m", "ts_ms": now_ms, "source": block, "transaction": place, "message": said}
        )
    return EventMessages.of("message", keys, values) if keys else None


def sequence_text(before: int | None, lsn: int) -> str:
    return f'[{"null" if before is None else chr(34) + str(before) + chr(34)},"{lsn}"]'


def _all_changes(placed: PlacedChanges, _: WalBatch) -> Sequence[TableChanges]:
    return [placed.changes]


@dataclass(slots=True)
class EventMapper:
    """Maps WAL batches in the order of the stream."""

    origin: SourceOrigin
    questions: LookupConnection
    captures: CapturedRelations
    toast: ToastFiller
    repeated_keys: RepeatedKeys
    clock: Clock
    has_messages: bool
    binary: str
    """The setting of that name, which also applies to logical messages."""
    set_aside: RejectedRows
    counts: TransactionCounts | None
    """None without transaction metadata."""
    choose: Callable[[PlacedChanges, WalBatch], Sequence[TableChanges]] = _all_changes
    """Leaves out changes that wait for rows of their table; the follower's."""
    _last_end: int | None = None
    _last_committed_us: int = 0
    _placed: list[PlacedChanges] = field(default_factory=list)
    _placed_bytes: int = 0
    _left_out: list[TransactionEvents] = field(default_factory=list)
    """Rejected rows, which still count as events."""
    _messages: list[tuple[WalMessage, MessageTime]] = field(default_factory=list)

    async def map_batch(self, wal_batch: WalBatch) -> AsyncGenerator[ChangeBatch, None]:
        """Yields the changes; only the last batch has a position, if the stream has one."""
        if not wal_batch.events and not len(wal_batch.transactions.xids):
            return
        alone = [
            each for each in wal_batch.events if self._is_told(each) and each.transaction is None
        ]
        commits = CommitColumns(wal_batch.transactions, last_end=self._last_end, alone=alone)
        self.questions.told_of(wal_batch.transactions.xids)
        for event in wal_batch.events:
            if not isinstance(event, RowChanges):
                await self._note(event, wal_batch, commits)
                continue
            if (capture := await self._capture_of(event)) is None:
                continue
            for piece in self.toast.pieces(self._readable(event, capture, commits), capture):
                if not await self._place(piece, capture, wal_batch, commits):
                    break
                if self._placed_bytes > BATCH_BYTES and self.counts is None:
                    yield self._batch(wal_batch)
        yield self._last_batch(wal_batch, commits)

    def _last_batch(self, wal_batch: WalBatch, commits: CommitColumns) -> ChangeBatch:
        last = self._batch(wal_batch)
        if len(wal_batch.transactions.xids):
            self._last_committed_us = int(wal_batch.transactions.committed_us[-1])
        if commits.last_end >= 0:
            self._last_end = commits.last_end
        if wal_batch.position is None:
            return last
        self.repeated_keys.forget()
        return replace(last, positions={STREAM: lsn_text(wal_batch.position)})

    def _batch(self, wal_batch: WalBatch) -> ChangeBatch:
        placed, self._placed, self._placed_bytes = self._placed, [], 0
        told, self._messages = self._messages, []
        now_ms = self.clock.now_ms()
        blocks: Sequence[TransactionBlock | None] = [None] * len(told)
        ends: EventMessages | None = None
        if self.counts is not None:
            said = [message for message, _ in told]
            left_out, self._left_out = self._left_out, []
            changes, blocks, ends = self.counts.count(wal_batch, placed, said, left_out)
            placed = [
                PlacedChanges(each, before.transactions)
                for each, before in zip(changes, placed, strict=True)
            ]
        notices = [messages(told, blocks, self.origin, form=self.binary, now_ms=now_ms), ends]
        tables = [each for one in placed for each in self.choose(one, wal_batch)]
        return ChangeBatch(tuple(tables), {}, notices=tuple(each for each in notices if each))

    async def _capture_of(self, part: RowChanges) -> CapturedRelation | None:
        capture = await self.captures.fitting(part)
        is_admitted = capture is not None and await self.captures.admits(capture.schema)
        return capture if is_admitted else None

    async def _place(
        self,
        piece: RowChanges,
        capture: CapturedRelation,
        wal_batch: WalBatch,
        commits: CommitColumns,
    ) -> bool:
        """Adds the changes to the batch; returns whether the table can be followed further."""
        part = await self.toast.fill(piece, capture)
        part = await self.repeated_keys.whole(part, capture, wal_batch.transactions)
        try:
            placed = self._to_types(part, capture, commits)
        except KeyNotSent as error:
            oid, table = part.relation.oid, capture.schema.table
            self.captures.refuse(RefusedTable(oid, table, error.problem, error.hint))
            return False
        if len(placed.changes):
            commits_until = wal_batch.transactions.commit_lsns[part.transactions]
            await self.captures.check_labels(
                placed.changes.rows,
                capture,
                since=int(part.lsns.min()),
                until=int(commits_until.max()),
            )
            self._placed.append(placed)
            self._placed_bytes += placed.changes.rows.nbytes
        return True

    def _to_types(
        self, part: RowChanges, capture: CapturedRelation, commits: CommitColumns
    ) -> PlacedChanges:
        part = self._readable(part, capture, commits)
        try:
            return to_table_changes(part, capture, commits, self.origin)
        except DecodeError:
            capture = capture.with_nan(part)
            part = self._without_rejects(part, capture, commits)
            return to_table_changes(part, capture, commits, self.origin)

    def _readable(
        self, part: RowChanges, capture: CapturedRelation, commits: CommitColumns
    ) -> RowChanges:
        """Without rows whose text is not readable: without a valid key, nothing could be read
        later."""
        return self._without_rejects(part, capture, commits) if part.has_unreadable else part

    def _without_rejects(
        self, part: RowChanges, capture: CapturedRelation, commits: CommitColumns
    ) -> RowChanges:
        kept, rejects = split_rejects(part, capture.with_nan(part), commits)
        self.set_aside.add(rejects)
        if rejects and self.counts is not None:
            self._left_out.append(_left_out(part, kept, capture))
        return kept

    def _is_told(self, event: WalEvent) -> TypeGuard[WalMessage]:
        return (
            isinstance(event, WalMessage) and self.has_messages and event.prefix not in OUR_PREFIXES
        )

    async def _note(
        self, event: TruncateMessage | WalMessage, wal_batch: WalBatch, commits: CommitColumns
    ) -> None:
        if isinstance(event, TruncateMessage):
            await self._truncate(event, commits)
        elif self._is_told(event):
            self._messages.append((event, self._moment(event, wal_batch, commits)))

    async def _truncate(self, event: TruncateMessage, commits: CommitColumns) -> None:
        for relation in event.relations:
            capture = await self.captures.of(relation, event.lsn)
            self.repeated_keys.forget(relation.oid)
            if capture is not None and await self.captures.admits(capture.schema):
                changes = truncate(event, capture, commits, self.origin)
                self._placed.append(PlacedChanges(changes, np.array([event.transaction], np.int64)))

    def _moment(
        self, message: WalMessage, wal_batch: WalBatch, commits: CommitColumns
    ) -> MessageTime:
        """Returns the time; a message outside of transactions has that of the last transaction
        before it."""
        at, transactions = message.transaction, wal_batch.transactions
        if at is not None:
            committed_us, xid = int(transactions.committed_us[at]), int(transactions.xids[at])
            return MessageTime(committed_us, commits.ended_before(at), xid)
        if message.behind < 0:
            return MessageTime(self._last_committed_us, None, None)
        return MessageTime(int(transactions.committed_us[message.behind]), None, None)


def _left_out(part: RowChanges, kept: RowChanges, capture: CapturedRelation) -> TransactionEvents:
    places = zip(kept.transactions.tolist(), kept.indexes.tolist(), strict=True)
    known = set(places)
    all_places = zip(part.transactions.tolist(), part.indexes.tolist(), strict=True)
    is_lost = np.array([place not in known for place in all_places], np.bool_)
    rows = np.repeat(np.flatnonzero(is_lost), 1 + moved_keys(part, capture)[is_lost])
    table = capture.schema.table
    return TransactionEvents(table, part.transactions[rows], part.indexes[rows], part.lsns[rows])
