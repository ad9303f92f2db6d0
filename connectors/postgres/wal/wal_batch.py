"""A part of the replication stream: columns of text instead of single rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array

INSERT, UPDATE, DELETE = b"IUD"
NO_OLD, OLD_KEY, OLD_ROW = 0, ord("K"), ord("O")

Picked = slice | BoolArray

UNREADABLE = "\0"
"""Prefix of text that is not UTF-8, with its bytes displayed after it as `caf<e9>`. No other text
of the server has a zero byte."""


class RelationColumn(NamedTuple):
    name: str
    is_identity: bool
    """Whether it belongs to the replica identity."""
    type_oid: int
    type_modifier: int


class Relation(NamedTuple):
    """A table as the server described it before the first change that needs it."""

    oid: int
    namespace: str
    name: str
    identity: str
    """`d`efault, `n`othing, `f`ull or `i`ndex."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a WAL batch, complete or not, in the order of their commits."""

    xids: Int64Array
    """As in the stream, with 32 bits."""
    commit_lsns: Int64Array
    end_lsns: Int64Array
    """Where the stream continues after it; -1 before the commit is known."""
    committed_us: Int64Array
    """Unix time."""
    begin_lsns: Int64Array
    """LSN of its first message: since PostgreSQL 15 the first that is sent, before that the first
    record in the WAL."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of rows of one relation, in order, without a truncate or a new schema in between."""

    relation: Relation
    operations: UInt8Array
    """`I`, `U` or `D`."""
    rows: tuple[pa.StringArray, ...]
    """Per column of the relation its text after the change; for a delete the columns that were sent
    of the deleted row."""
    unchanged: Mapping[int, BoolArray]
    """Per column with such values: unchanged values that the server did not send. They are null in
    `rows`."""
    old: tuple[pa.StringArray, ...] | None
    """For updates that have one, the row or the key before; None if no update has any."""
    old_kinds: UInt8Array
    """Per change `NO_OLD`, `OLD_KEY` or `OLD_ROW`, including deletes."""
    lsns: Int64Array
    """The LSN of each message."""
    transactions: Int64Array
    """Per change, the index of its transaction in `WalBatch.transactions`."""
    indexes: Int64Array
    """Index among all changes, truncates and transactional messages of its transaction, from 0 on,
    in stream order."""
    has_unreadable: bool = False
    """Whether one of the texts is `UNREADABLE`."""
    reselected: Mapping[int, BoolArray] = field(default_factory=dict)
    """Per column the values that were read from the table since."""
    placeholders: Mapping[int, BoolArray] = field(default_factory=dict)
    """Per column the values that become Debezium's placeholder."""
    unavailable: Mapping[int, BoolArray] = field(default_factory=dict)
    """Per dropped column the values that can no longer be read."""

    def __len__(self) -> int:
        return len(self.operations)

    def slice(self, start: int, end: int) -> "RowChanges":
        return self._take(slice(start, end), lambda text: text[start:end])

    def filter(self, keep: BoolArray) -> "RowChanges":
        if keep.all():
            return self
        chosen = pa.array(keep)
        return self._take(keep, lambda text: text.filter(chosen))

    def _take(self, rows: Picked, take: Callable[[pa.StringArray], pa.StringArray]) -> "RowChanges":
        def masks(all_rows: Mapping[int, BoolArray]) -> dict[int, BoolArray]:
            taken = {place: mask[rows] for place, mask in all_rows.items()}
            return {place: mask for place, mask in taken.items() if mask.any()}

        return RowChanges(
            self.relation,
            self.operations[rows],
            tuple(take(text) for text in self.rows),
            masks(self.unchanged),
            None if self.old is None else tuple(take(text) for text in self.old),
            self.old_kinds[rows],
            self.lsns[rows],
            self.transactions[rows],
            self.indexes[rows],
            self.has_unreadable,
            masks(self.reselected),
            masks(self.placeholders),
            masks(self.unavailable),
        )


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    relations: tuple[Relation, ...]
    lsn: int
    transaction: int
    index: int


@dataclass(frozen=True, slots=True)
class WalMessage:
    """A logical message, from `pg_logical_emit_message`."""

    prefix: str
    content: bytes
    lsn: int
    transaction: int | None
    """None for one outside of transactions, which is sent at once."""
    index: int
    behind: int = -1
    """The transaction of the WAL batch that came before it, or that it is in; -1 if none did."""


WalEvent = RowChanges | TruncateMessage | WalMessage


@dataclass(frozen=True, slots=True)
class WalBatch:
    """A WAL batch ends at a commit, or outside of any transaction, unless a transaction is larger
    than the buffer.

    Rows of one table keep their order; those of different tables may be grouped.
    """

    transactions: Transactions
    events: tuple[WalEvent, ...]
    position: int | None
    """Everything below has been streamed, so that the next start may be here; None while a
    transaction is open."""
    is_wanted: bool = False
    """Whether the server waits for the confirmation of this position, as it does before it
    stops."""
