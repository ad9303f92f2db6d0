"""Tables read beside the stream: progress, chunks that wait, and keys streamed meanwhile."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pyarrow as pa

from headwater.connectors.mysql.position import BinlogPosition
from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.settings import MysqlSnapshotSettings
from headwater.connectors.mysql.snapshot.chunk_reader import MysqlChunk
from headwater.connectors.snapshot import reread_limits
from headwater.connectors.snapshot.reread_limits import RereadEstimate, estimate_reread
from headwater.connectors.snapshot.row_keys import having_keys, own_copy
from headwater.connectors.source import FreeSpace
from headwater.core_log.foundation.errors import DecodeError, check_format
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableId

FORMAT_VERSION = 1
PROGRESS, FORM = "snapshot/", "form/"
"""Prefixes of these parts."""

KEYS_BYTES_MAX = 32 << 20


def progress_part(table: TableId) -> str:
    return f"{PROGRESS}{_name_of(table)}"


def form_part(table: TableId) -> str:
    return f"{FORM}{_name_of(table)}"


def _name_of(table: TableId) -> str:
    """Returns the name with one dot between database and table: a dot of the database is encoded,
    and one of the table comes later."""
    return str(TableId(table.namespace.replace("%", "%25").replace(".", "%2E"), table.name))


def table_of(name: str) -> TableId:
    """Returns the table of a part, without its prefix."""
    namespace, _, table = name.partition(".")
    return TableId(namespace.replace("%2E", ".").replace("%25", "%"), table)


def form_text(form: Mapping[str, Any]) -> str:
    return orjson.dumps({"version": FORMAT_VERSION, **form}).decode()


def parse_form(text: str) -> Mapping[str, Any]:
    try:
        form: Mapping[str, Any] = orjson.loads(text)
    except ValueError:
        raise DecodeError("a part of the position is not the form of a table") from None
    return form


@dataclass(frozen=True, slots=True)
class MysqlTableProgress:
    """With `is_done` it is kept for ever, so that the table is not read again."""

    last: tuple[bytes, ...] | None = None
    """The key's cells of the last row that was emitted; None before the first."""
    rows: int = 0
    is_done: bool = False
    is_paused: bool = False
    signal: str = ""
    """The id of its signal."""
    reread: str = ""
    """The reason of a re-read; at its end, rows that no longer exist are deleted."""
    kinds: tuple[str, ...] = ()
    """Kinds of the schema changes behind it that no person has permitted."""
    has_other_key: bool = False
    """The log's rows may have another key, so that none are streamed before the re-read starts."""
    is_started: bool = False
    """Its start is the last of `starts_ms`: the log knows where its rows begin."""
    is_keyless: bool = False
    """The log has rows of the table without a key."""
    is_permitted: bool = False
    is_stopped: bool = False
    starts_ms: tuple[int, ...] = ()
    """Start times of the last few re-reads."""

    @property
    def awaits_other_key(self) -> bool:
        """Whether a re-read is to come, and the log's rows may have another key until then."""
        return bool(self.reread) and self.has_other_key and not self.is_started

    def advance(self, last: Sequence[bytes], *, rows: int) -> "MysqlTableProgress":
        return replace(self, last=tuple(last), rows=self.rows + rows)

    def restart(self) -> "MysqlTableProgress":
        """Returns the progress from the first row again."""
        return replace(self, last=None, rows=0)

    def finish(self) -> "MysqlTableProgress":
        return MysqlTableProgress(
            rows=self.rows, is_done=True, is_keyless=self.is_keyless, starts_ms=self.starts_ms
        )

    def again(
        self, why: str, kinds: Sequence[str] = (), *, has_other_key: bool = False
    ) -> "MysqlTableProgress":
        return MysqlTableProgress(
            reread=why,
            has_other_key=has_other_key or (self.has_other_key and not self.is_started),
            kinds=tuple(dict.fromkeys((*self.kinds, *kinds))),
            is_paused=self.is_paused,
            is_keyless=self.is_keyless,
            is_stopped=self.is_stopped,
            starts_ms=self.starts_ms,
        )

    def permit(self) -> "MysqlTableProgress":
        return replace(self, kinds=(), is_permitted=True, is_stopped=False, is_paused=False)

    def start(self, now_ms: int) -> "MysqlTableProgress":
        return replace(
            self, is_started=True, starts_ms=reread_limits.add_start(self.starts_ms, now_ms)
        )

    def is_one_too_many(self, now_ms: int) -> bool:
        return not self.is_started and reread_limits.is_one_too_many(self.starts_ms, now_ms)

    def text(self) -> str:
        said: dict[str, Any] = {"version": FORMAT_VERSION, "rows": self.rows}
        if self.last is not None:
            said["last"] = [cell.hex() for cell in self.last]
        flags = {
            "done": self.is_done, "paused": self.is_paused, "started": self.is_started,
            "permitted": self.is_permitted, "stopped": self.is_stopped,
            "other_key": self.has_other_key, "keyless": self.is_keyless,
        }  # fmt: skip
        said |= {name: True for name, is_set in flags.items() if is_set}
        texts = {"wish": self.signal, "reread": self.reread}
        said |= {name: text for name, text in texts.items() if text}
        lists = {"kinds": self.kinds, "starts": self.starts_ms}
        said |= {name: values for name, values in lists.items() if values}
        return orjson.dumps(said).decode()

    @classmethod
    def parse(cls, text: str) -> "MysqlTableProgress":
        try:
            said = orjson.loads(text)
            check_format(said["version"], FORMAT_VERSION, "the progress of a snapshot was stored")
            last = said.get("last")
            return cls(
                last=None if last is None else tuple(bytes.fromhex(cell) for cell in last),
                rows=said["rows"],
                is_done=said.get("done", False),
                is_paused=said.get("paused", False),
                signal=said.get("wish", ""),
                reread=said.get("reread", ""),
                kinds=tuple(said.get("kinds", ())),
                has_other_key=said.get("other_key", False),
                is_keyless=said.get("keyless", False),
                is_started=said.get("started", False),
                is_permitted=said.get("permitted", False),
                is_stopped=said.get("stopped", False),
                starts_ms=tuple(said.get("starts", ())),
            )
        except (KeyError, ValueError, TypeError):
            raise DecodeError("a part of the position is not one of a snapshot") from None


@dataclass(slots=True)
class StreamedWindow:
    """Open from before the rows are read until they are emitted: a row whose key was streamed
    meanwhile is left out, because the log has a newer row or a delete."""

    opened_at: BinlogPosition
    """The stream's position, all of which the rows must show."""
    is_overrun: bool = False
    """The rows must be read again: too many keys, a truncate, or another form."""
    _keys: list[pa.RecordBatch] = field(default_factory=list)
    _bytes: int = 0

    def saw(self, changes: TableChanges) -> None:
        if self.is_overrun:
            return
        if changes.is_truncate:
            self.overrun()
            return
        keys = own_copy(changes.keys)
        self._keys.append(keys)
        self._bytes += keys.nbytes
        if self._bytes > KEYS_BYTES_MAX:
            self.overrun()

    def overrun(self) -> None:
        self.is_overrun = True
        self._keys.clear()

    def drop_streamed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self._keys:
            return rows
        [keys] = pa.Table.from_batches(self._keys).combine_chunks().to_batches()
        is_stale = having_keys(rows, keys)
        return rows.filter(pa.array(~is_stale)) if is_stale.any() else rows


@dataclass(slots=True, eq=False)
class ChunkInWork:
    """A chunk of a table from when a worker takes it on until the stream has passed its
    snapshot."""

    after: tuple[bytes, ...] | None
    """The key's cells of the row before it; None before the first row."""
    upto: tuple[bytes, ...] | None = None
    """Those of its last row, if they were asked for; else it has a number of rows."""
    window: StreamedWindow | None = None
    chunk: MysqlChunk | None = None
    """Its rows, once they were read."""

    @property
    def end(self) -> tuple[bytes, ...] | None:
        """Returns where the next chunk begins; None if that is not known, or if there is none."""
        if self.chunk is None:
            return self.upto
        return None if self.chunk.is_last else self.chunk.last


@dataclass(slots=True, eq=False)
class TableJob:
    """The reading of one table, in chunks that are read at the same time and emitted in turn."""

    table: MysqlTable
    progress: MysqlTableProgress
    chunks: list[ChunkInWork] = field(default_factory=list)
    """In the order of the key, from the first that is not emitted."""
    is_over: bool = False
    held: str = ""
    """The reason why a re-read waits for a person."""
    is_unreadable: bool = False
    """The server could not read its rows; it is tried again later."""
    due_ms: int = 0
    """A re-read begins not before this time."""

    @property
    def is_active(self) -> bool:
        is_ready = not self.progress.reread or self.progress.is_started
        return is_ready and not (
            self.is_over or self.held or self.is_unreadable or self.progress.is_paused
        )

    def wants_worker(self, chunks_max: int) -> bool:
        """Whether a further chunk can be read: where it begins has to be known."""
        if not self.is_active or len(self.chunks) >= chunks_max:
            return False
        return not self.chunks or self.chunks[-1].end is not None

    def next_chunk(self) -> ChunkInWork:
        after = self.chunks[-1].end if self.chunks else self.progress.last
        self.chunks.append(ChunkInWork(after))
        return self.chunks[-1]

    def drop_chunks(self) -> None:
        """Gives up what is not emitted: it is read again."""
        self.chunks.clear()


@dataclass(slots=True)
class WorkSignal:
    """Wakes whoever waits for work, and whoever waits for rows."""

    work: asyncio.Event = field(default_factory=asyncio.Event)
    rows: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        """Wakes both."""
        self.work.set()
        self.rows.set()


def estimate_of(
    table: MysqlTable, settings: MysqlSnapshotSettings, free: Sequence[FreeSpace]
) -> RereadEstimate:
    """Returns how much a re-read of the table would read, by the catalogue."""
    return estimate_reread(
        table.rows_estimate,
        table.bytes_estimate,
        rows_per_second=settings.max_rows_per_second,
        between=settings.between,
        free=free,
    )
