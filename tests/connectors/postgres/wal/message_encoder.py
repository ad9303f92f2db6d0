"""What a server writes into its stream, message by message: the slow and obvious encoder."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headwater.connectors.postgres.wal.wal_batch import Relation, RelationColumn

EPOCH_US: Final = 946_684_800_000_000


class Kept:
    """Stands for a value that an update left as it was."""


KEPT = Kept()
Value = str | bytes | None | Kept
Row = Sequence[Value]


def frame(letter: bytes, content: bytes) -> bytes:
    return letter + struct.pack(">I", 4 + len(content)) + content


def logged(message: bytes, lsn: int = 0) -> bytes:
    """A message of pgoutput as it comes."""
    return frame(b"d", b"w" + struct.pack(">qqq", lsn, lsn, 0) + message)


def keepalive(wal_end: int, *, wants_answer: bool = False) -> bytes:
    return frame(b"d", b"k" + struct.pack(">qqB", wal_end, 0, wants_answer))


def word(text: str) -> bytes:
    return text.encode() + b"\0"


def begin(xid: int, commit_lsn: int, committed_us: int = EPOCH_US) -> bytes:
    return b"B" + struct.pack(">qqI", commit_lsn, committed_us - EPOCH_US, xid)


def commit(commit_lsn: int, end_lsn: int) -> bytes:
    return b"C" + struct.pack(">Bqqq", 0, commit_lsn, end_lsn, 0)


def relation(described: Relation) -> bytes:
    content = b"R" + struct.pack(">I", described.oid) + word(described.namespace)
    content += word(described.name) + described.identity.encode()
    content += struct.pack(">H", len(described.columns))
    for column in described.columns:
        content += struct.pack(">B", column.is_identity) + word(column.name)
        content += struct.pack(">Ii", column.type_oid, column.type_modifier)
    return content


def row(values: Row) -> bytes:
    content = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            content += b"n"
        elif isinstance(value, Kept):
            content += b"u"
        else:
            encoded = value.encode() if isinstance(value, str) else value
            content += b"t" + struct.pack(">I", len(encoded)) + encoded
    return content


def insert(oid: int, new: Row) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(new)


def update(oid: int, new: Row, *, key: Row | None = None, old: Row | None = None) -> bytes:
    before = b"" if key is None else b"K" + row(key)
    before += b"" if old is None else b"O" + row(old)
    return b"U" + struct.pack(">I", oid) + before + b"N" + row(new)


def delete(oid: int, gone: Row, *, kind: bytes = b"K") -> bytes:
    return b"D" + struct.pack(">I", oid) + kind + row(gone)


def truncate(*oids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(oids), 0) + b"".join(struct.pack(">I", o) for o in oids)


def message(prefix: str, content: bytes, *, lsn: int, is_transactional: bool) -> bytes:
    head = b"M" + struct.pack(">Bq", is_transactional, lsn) + word(prefix)
    return head + struct.pack(">I", len(content)) + content


def table(oid: int, *columns: str, name: str = "", identity: str = "d") -> Relation:
    return Relation(
        oid,
        "public",
        name or f"t{oid}",
        identity,
        tuple(RelationColumn(each, place == 0, 25, -1) for place, each in enumerate(columns)),
    )


@dataclass(frozen=True, slots=True)
class Transaction:
    """Messages between a beginning and a commit, each at a place of its own."""

    number: int
    messages: Sequence[bytes]

    @property
    def commit_lsn(self) -> int:
        return self.number * 10_000 + 9_000

    @property
    def end_lsn(self) -> int:
        return self.commit_lsn + 8

    @property
    def committed_us(self) -> int:
        return EPOCH_US + self.number

    def lsn(self, place: int) -> int:
        return self.number * 10_000 + place

    def written(self) -> bytes:
        """Everything but the commit is at its own place; the stream has a frame for each."""
        content = logged(begin(self.number, self.commit_lsn, self.committed_us), self.commit_lsn)
        for place, each in enumerate(self.messages):
            content += logged(each, self.lsn(place))
        return content + logged(commit(self.commit_lsn, self.end_lsn), self.commit_lsn)


def written(transactions: Iterable[Transaction]) -> bytes:
    return b"".join(each.written() for each in transactions)
