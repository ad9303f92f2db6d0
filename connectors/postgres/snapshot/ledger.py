"""What has been read of a table so far, kept as one part of the source's position."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import orjson

from connectors.postgres.lsn import lsn_text, parse_lsn
from connectors.postgres.snapshot.visibility import Snapshot
from core_log.errors import DecodeError
from core_log.table_schema import TableId

FORMAT_VERSION = 1
PREFIX = "snapshot/"
"""Of parts of the position."""

Pages = tuple[int, int]
"""From the first up to, and without, the second."""


def part_of(table: TableId) -> str:
    return f"{PREFIX}{table}"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A table that holds rows itself: the table that is captured, or one of its partitions."""

    oid: int
    filenode: int
    """Another one once the table was written anew; places in the old mean nothing in it."""
    pages: int
    read: tuple[Pages, ...] = ()
    """In rising order, and never touching each other."""

    @property
    def is_read(self) -> bool:
        return not self.pages or self.read == ((0, self.pages),)

    @property
    def pages_read(self) -> int:
        return sum(end - start for start, end in self.read)

    def with_read(self, pages: Pages) -> "Leaf":
        return replace(self, read=_joined((*self.read, pages)))

    def unread(self) -> list[Pages]:
        starts = [0, *(end for _, end in self.read)]
        ends = [*(start for start, _ in self.read), self.pages]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True, slots=True)
class Ledger:
    """Of one table; `done` stays behind for ever, so that nobody reads it again."""

    snapshot: Snapshot | None = None
    """Everything that it does not see comes by the stream, so that only what it does is read."""
    leaves: tuple[Leaf, ...] = ()
    rows: int = 0
    oid: int = 0
    """Which table it was; another one of its name is to be read, too."""
    is_done: bool = False
    is_paused: bool = False
    has_left: bool = False
    """The table is not captured any more; should it be again, all of it is to be read."""
    since: int = 0
    """What the stream brings of earlier commits is left out: the table was emptied, as changes of
    it were missed, and is read as it was later."""
    wish: str = ""
    """The id of the wish that wants it; empty when the table is read because it is new here."""
    where: str = ""
    reread: str = ""
    """Why the table is read again as a whole, though the log has its rows: then those that are
    gone are deleted at the end."""
    after: int = 0
    """Of such a reading: where the stream has to come first."""

    @property
    def has_begun(self) -> bool:
        return self.snapshot is not None

    @property
    def is_read(self) -> bool:
        return self.has_begun and all(leaf.is_read for leaf in self.leaves)

    def with_read(self, oid: int, pages: Pages, *, rows: int) -> "Ledger":
        leaves = tuple(leaf.with_read(pages) if leaf.oid == oid else leaf for leaf in self.leaves)
        return replace(self, leaves=leaves, rows=self.rows + rows)

    def done(self) -> "Ledger":
        return Ledger(rows=self.rows, oid=self.oid, is_done=True)

    def left(self) -> "Ledger":
        return Ledger(rows=self.rows, has_left=True)

    def to_be_read_again(self, why: str, *, after: int) -> "Ledger":
        return Ledger(oid=self.oid, is_paused=self.is_paused, reread=why, after=after)

    def text(self) -> str:
        said: dict[str, object] = {"version": FORMAT_VERSION, "rows": self.rows, "oid": self.oid}
        if self.is_done:
            said["done"] = True
        if self.snapshot is not None:
            said["snapshot"] = str(self.snapshot)
            said["leaves"] = [
                [leaf.oid, leaf.filenode, leaf.pages, leaf.read] for leaf in self.leaves
            ]
        if self.is_paused:
            said["paused"] = True
        if self.has_left:
            said["left"] = True
        if self.since:
            said["since"] = lsn_text(self.since)
        if self.wish:
            said |= {"wish": self.wish, "where": self.where}
        if self.reread:
            said |= {"reread": self.reread, "after": lsn_text(self.after)}
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "Ledger":
        try:
            said = orjson.loads(text)
            if said["version"] > FORMAT_VERSION:
                raise DecodeError(
                    "what was read of a table was written down by a newer Headwater",
                    hint="upgrade Headwater here",
                )
            leaves = tuple(
                Leaf(oid, filenode, pages, tuple((start, end) for start, end in read))
                for oid, filenode, pages, read in said.get("leaves", ())
            )
            snapshot = Snapshot.parse(said["snapshot"]) if "snapshot" in said else None
            return cls(
                snapshot=snapshot,
                leaves=leaves,
                rows=said["rows"],
                oid=said.get("oid", 0),
                is_done=said.get("done", False),
                is_paused=said.get("paused", False),
                has_left=said.get("left", False),
                since=parse_lsn(said.get("since", "0/0")),
                wish=said.get("wish", ""),
                where=said.get("where", ""),
                reread=said.get("reread", ""),
                after=parse_lsn(said.get("after", "0/0")),
            )
        except (KeyError, ValueError, TypeError):
            raise DecodeError("a part of the position is none of a snapshot's") from None


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A stretch of one leaf that is read at a time. The same stretch is another chunk once its
    reading has begun anew."""

    leaf: Leaf
    pages: Pages


def chunks_of(leaves: Iterable[Leaf], *, pages_each: Sequence[int]) -> list[Chunk]:
    """What is left to be read, a leaf after the other."""
    return [
        Chunk(leaf, (first, min(first + each, end)))
        for leaf, each in zip(leaves, pages_each, strict=True)
        for start, end in leaf.unread()
        for first in range(start, end, each)
    ]


def _joined(pages: Iterable[Pages]) -> tuple[Pages, ...]:
    found: list[Pages] = []
    for start, end in sorted(pages):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)
