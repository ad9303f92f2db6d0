"""The progress of a table's snapshot, as one part of the source position."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import orjson

from headwater.connectors.postgres.server.lsn import PgSnapshot, lsn_text, parse_lsn
from headwater.connectors.snapshot import reread_limits
from headwater.core_log.foundation.errors import DecodeError, check_format
from headwater.core_log.model.table_schema import TableId

FORMAT_VERSION = 1
PREFIX = "snapshot/"
"""Prefix of these parts of the position."""

Pages = tuple[int, int]
"""From the first page to the second, exclusive."""


def part_of(table: TableId) -> str:
    return f"{PREFIX}{table}"


@dataclass(frozen=True, slots=True)
class LeafProgress:
    """A table that holds rows itself: the captured table, or one of its partitions."""

    oid: int
    filenode: int
    """Changes when the table is rewritten; page numbers are then obsolete."""
    pages: int
    read: tuple[Pages, ...] = ()
    """Ascending, and not adjacent."""

    @property
    def is_read(self) -> bool:
        return not self.pages or self.read == ((0, self.pages),)

    @property
    def pages_read(self) -> int:
        return sum(end - start for start, end in self.read)

    def with_read(self, pages: Pages) -> "LeafProgress":
        return replace(self, read=_concat((*self.read, pages)))

    def unread(self) -> list[Pages]:
        starts = [0, *(end for _, end in self.read)]
        ends = [*(start for start, _ in self.read), self.pages]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True, slots=True)
class TableSnapshotProgress:
    """Progress of one table; with `done` it is kept for ever, so that the table is not read
    again."""

    snapshot: PgSnapshot | None = None
    """Everything that this snapshot does not see comes by the stream; only rows that it sees are
    read."""
    leaves: tuple[LeafProgress, ...] = ()
    rows: int = 0
    oid: int = 0
    """The table's oid; another table of the same name is read again."""
    is_done: bool = False
    is_paused: bool = False
    has_left: bool = False
    """The table is not captured any more; if it is again, all of it is read."""
    since: int = 0
    """Streamed changes of earlier commits are left out: the table was truncated after missed
    changes, and was read later."""
    signal: str = ""
    """The id of its signal; empty if the table is read because it is new."""
    where: str = ""
    reread: str = ""
    """The reason of a re-read; at its end, rows that no longer exist are deleted."""
    after: int = 0
    """For a re-read: the position that the stream must reach first."""
    kinds: tuple[str, ...] = ()
    """Kinds of the schema changes behind it that no person has permitted."""
    is_permitted: bool = False
    """A person has started it, in spite of all reasons to hold it."""
    is_stopped: bool = False
    """A person has stopped it, until somebody starts it."""
    is_started: bool = False
    """Its start is the last of `starts_ms`; stored as `counted`."""
    starts_ms: tuple[int, ...] = ()
    """Start times of the last few re-reads of the table."""
    has_ids: bool = False
    """The newest record of each row was written under the ids of the columns."""
    follows: str = ""
    """The schema change that the log follows by these ids, until it has a row of the new form."""

    @property
    def has_begun(self) -> bool:
        return self.snapshot is not None

    @property
    def is_read(self) -> bool:
        return self.has_begun and all(leaf.is_read for leaf in self.leaves)

    def with_read(self, oid: int, pages: Pages, *, rows: int) -> "TableSnapshotProgress":
        leaves = tuple(leaf.with_read(pages) if leaf.oid == oid else leaf for leaf in self.leaves)
        return replace(self, leaves=leaves, rows=self.rows + rows)

    def finish(self) -> "TableSnapshotProgress":
        return TableSnapshotProgress(
            rows=self.rows,
            oid=self.oid,
            is_done=True,
            starts_ms=self.starts_ms,
            has_ids=self.has_ids,
            follows=self.follows,
            after=self.after if self.follows else 0,
        )

    def follow(self, why: str, *, after: int) -> "TableSnapshotProgress":
        """Returns the progress of a complete table that changes in place."""
        return replace(self, follows=why, after=max(after, self.after))

    def end_following(self) -> "TableSnapshotProgress":
        return replace(self, follows="", after=self.after if self.reread else 0)

    def leave(self) -> "TableSnapshotProgress":
        return TableSnapshotProgress(rows=self.rows, has_left=True)

    def to_be_read_again(
        self, why: str, kinds: Sequence[str] = (), *, after: int
    ) -> "TableSnapshotProgress":
        """Returns the progress of a re-read; kinds that were not permitted for an earlier one are
        kept."""
        return TableSnapshotProgress(
            oid=self.oid,
            is_paused=self.is_paused,
            since=self.since,
            reread=why,
            after=after,
            kinds=tuple(dict.fromkeys((*self.kinds, *kinds))),
            is_stopped=self.is_stopped,
            starts_ms=self.starts_ms,
            has_ids=self.has_ids,
        )

    def stop(self) -> "TableSnapshotProgress":
        """Returns the stopped progress; it starts again when somebody permits it."""
        again = self.to_be_read_again(self.reread, after=self.after)
        return replace(again, is_stopped=True)

    def permit(self) -> "TableSnapshotProgress":
        return replace(self, kinds=(), is_permitted=True, is_stopped=False, is_paused=False)

    def start(self, now_ms: int) -> "TableSnapshotProgress":
        """Counts the start. Each re-read counts once, however often it starts again."""
        if self.is_started:
            return self
        starts = reread_limits.add_start(self.starts_ms, now_ms)
        return replace(self, is_started=True, starts_ms=starts)

    def is_one_too_many(self, now_ms: int) -> bool:
        return not self.is_started and reread_limits.is_one_too_many(self.starts_ms, now_ms)

    def text(self) -> str:
        said: dict[str, object] = {"version": FORMAT_VERSION, "rows": self.rows, "oid": self.oid}
        if self.is_done:
            said["done"] = True
        if self.snapshot is not None:
            said["snapshot"] = str(self.snapshot)
            said["leaves"] = [
                [leaf.oid, leaf.filenode, leaf.pages, leaf.read] for leaf in self.leaves
            ]
        marks = {"paused": self.is_paused, "left": self.has_left, "ids": self.has_ids}
        said |= {name: True for name, is_set in marks.items() if is_set}
        if self.since:
            said["since"] = lsn_text(self.since)
        if self.signal:
            said |= {"wish": self.signal, "where": self.where}
        if self.reread:
            said |= {"reread": self.reread, "after": lsn_text(self.after), "kinds": self.kinds}
            flags = {
                "permitted": self.is_permitted,
                "stopped": self.is_stopped,
                "counted": self.is_started,
            }
            said |= {name: True for name, is_set in flags.items() if is_set}
        if self.starts_ms:
            said["starts"] = self.starts_ms
        if self.follows:
            said |= {"follows": self.follows, "after": lsn_text(self.after)}
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "TableSnapshotProgress":
        try:
            said = orjson.loads(text)
            check_format(said["version"], FORMAT_VERSION, "the progress of a snapshot was stored")
            leaves = tuple(
                LeafProgress(oid, filenode, pages, tuple((start, end) for start, end in read))
                for oid, filenode, pages, read in said.get("leaves", ())
            )
            snapshot = PgSnapshot.parse(said["snapshot"]) if "snapshot" in said else None
            return cls(
                snapshot=snapshot,
                leaves=leaves,
                rows=said["rows"],
                oid=said.get("oid", 0),
                is_done=said.get("done", False),
                is_paused=said.get("paused", False),
                has_left=said.get("left", False),
                since=parse_lsn(said.get("since", "0/0")),
                signal=said.get("wish", ""),
                where=said.get("where", ""),
                reread=said.get("reread", ""),
                after=parse_lsn(said.get("after", "0/0")),
                kinds=tuple(said.get("kinds", ())),
                is_permitted=said.get("permitted", False),
                is_stopped=said.get("stopped", False),
                is_started=said.get("counted", False),
                starts_ms=tuple(said.get("starts", ())),
                has_ids=said.get("ids", False),
                follows=said.get("follows", ""),
            )
        except (KeyError, ValueError, TypeError):
            raise DecodeError("a part of the position is not one of a snapshot") from None


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A range of one leaf's pages that is read at a time. The same range is another chunk once its
    snapshot has started again."""

    leaf: LeafProgress
    pages: Pages


def chunks_of(leaves: Iterable[LeafProgress], *, pages_each: Sequence[int]) -> list[Chunk]:
    """Yields the remaining chunks, leaf by leaf."""
    return [
        Chunk(leaf, (first, min(first + each, end)))
        for leaf, each in zip(leaves, pages_each, strict=True)
        for start, end in leaf.unread()
        for first in range(start, end, each)
    ]


def _concat(pages: Iterable[Pages]) -> tuple[Pages, ...]:
    found: list[Pages] = []
    for start, end in sorted(pages):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)
