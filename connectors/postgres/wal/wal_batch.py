"""What one reading of the replication stream brings: columns of text, not a row at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array

INSERT, UPDATE, DELETE = b"IUD"
NO_OLD, OLD_KEY, OLD_ROW = 0, ord("K"), ord("O")

UNREADABLE = "\0"
"""What a text begins with that was not UTF-8, with its bytes shown behind it as `caf<e9>`. No other
text of the server's has a zero byte."""


class RelationColumn(NamedTuple):
    name: str
    is_identity: bool
    """Whether it is of the replica identity."""
    type_oid: int
    type_modifier: int


class Relation(NamedTuple):
    """A table as the server described it just before the first change that needs it."""

    oid: int
    namespace: str
    name: str
    identity: str
    """`d`efault, `n`othing, `f`ull or `i`ndex."""
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions that a burst belongs to, whole or in part, in the order of their commits."""

    xids: Int64Array
    """As the stream has them, in 32 bits."""
    commit_lsns: Int64Array
    end_lsns: Int64Array
    """Where the stream goes on after it; -1 while it is not known, as the commit is yet to come."""
    committed_us: Int64Array
    """Unix time."""
    begin_lsns: Int64Array
    """Where the message that begins it stands: the first one of it that is sent since PostgreSQL
    15, before that the first record of it in the server's log."""


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of rows of one relation, in order; no truncate and no new form of it in between."""

    relation: Relation
    operations: UInt8Array
    """`I`, `U` or `D`."""
    rows: tuple[pa.StringArray, ...]
    """Per column of the relation its text after the change; of a delete what was sent of the row
    that went."""
    unchanged: Mapping[int, BoolArray]
    """Per column in which there are any: values that an update left as they were and the server
    did not send. They are null in `rows`."""
    old: tuple[pa.StringArray, ...] | None
    """Of updates that came with one, the row or the key before; None where no update did."""
    old_kinds: UInt8Array
    """Per change `NO_OLD`, `OLD_KEY` or `OLD_ROW`, deletes included."""
    lsns: Int64Array
    """Where each message stands in the write-ahead log."""
    transactions: Int64Array
    """Per change, which of `Burst.transactions` it belongs to."""
    indexes: Int64Array
    """Which of all changes, truncates and transactional messages of its transaction it is, from
    0 on, in the order of the stream."""
    has_unreadable: bool = False
    """Whether any of the texts is `UNREADABLE`."""

    def __len__(self) -> int:
        return len(self.operations)


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
    """The transaction of the burst that came before it, or that it is in; -1 where none did."""


WalEvent = RowChanges | TruncateMessage | WalMessage


@dataclass(frozen=True, slots=True)
class WalBatch:
    """Ends at a commit, or outside of any transaction, unless one is larger than the buffer.

    Rows of one table keep their order; of different tables they may be grouped.
    """

    transactions: Transactions
    events: tuple[WalEvent, ...]
    position: int | None
    """Everything below has been streamed, so that the next start may be here; None while a
    transaction goes on."""
    is_wanted: bool = False
    """Whether the server waits for this position to be confirmed, as it does before it stops."""
