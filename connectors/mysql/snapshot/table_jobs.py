"""Tables to read beside the stream, and the chunks that wait to be emitted."""

import asyncio
from dataclasses import dataclass, field

from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.snapshot.chunk_reader import MysqlChunk
from headwater.connectors.mysql.snapshot.streamed_window import StreamedWindow
from headwater.connectors.mysql.snapshot.table_progress import MysqlTableProgress


@dataclass(slots=True, eq=False)
class ReadChunk:
    """A chunk in memory, until the stream has passed its snapshot."""

    chunk: MysqlChunk
    window: StreamedWindow


@dataclass(slots=True, eq=False)
class TableJob:
    """The reading of one table. It has at most one chunk that is read or waits."""

    table: MysqlTable
    progress: MysqlTableProgress
    window: StreamedWindow | None = None
    """Of the chunk that is being read or waits."""
    waiting: ReadChunk | None = None
    is_taken: bool = False
    """A worker reads a chunk."""
    is_over: bool = False
    held: str = ""
    """The reason why a re-read waits for a person."""
    is_unreadable: bool = False
    """The server could not read its rows; it is tried again later."""
    due_ms: int = 0
    """A re-read begins not before this time."""

    @property
    def wants_work(self) -> bool:
        is_ready = not self.progress.reread or self.progress.is_started
        return is_ready and not (
            self.is_over
            or self.is_taken
            or self.held
            or self.is_unreadable
            or self.progress.is_paused
            or self.waiting is not None
        )

    def drop_chunk(self) -> None:
        """Gives up a chunk: it is read again."""
        self.waiting = None
        if self.window is not None:
            self.window.overrun()


@dataclass(slots=True)
class WorkSignal:
    """Wakes whoever waits for work, and whoever waits for rows."""

    work: asyncio.Event = field(default_factory=asyncio.Event)
    rows: asyncio.Event = field(default_factory=asyncio.Event)
