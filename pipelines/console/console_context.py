"""Everything that the routes of a console speak of."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from headwater.pipelines.console.command_runs import CommandRuns
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.console.live_status import FindOwner, LiveStatus
from headwater.pipelines.console.message_tail import TailCount
from headwater.pipelines.console.shared_log import OpenLog

SEARCHES_MAX = 4


@dataclass(frozen=True)
class ConsoleSources:
    """Where a console finds what it shows."""

    find_owner: FindOwner
    open_log: OpenLog
    """Over a directory at rest it is owned for as long as the block lasts."""
    follow_log: OpenLog
    """Only of a log that somebody runs: whoever waits must not own it."""
    hidden: HiddenColumns = NOTHING_HIDDEN
    is_read_only: bool = False
    arguments: tuple[str, ...] = ()
    """Options by which commands find the same log."""
    file: Path | None = None
    """Without a pipeline file sources and targets are not known."""
    has_connect: bool = False
    """Whether Kafka Connect's REST API is served at /connect."""


@dataclass(frozen=True)
class ConsoleContext:
    """One of these lives as long as its console."""

    live: LiveStatus
    sources: ConsoleSources
    open_log: OpenLog
    """As that of the sources, shared by looks that overlap."""
    runs: CommandRuns
    searches: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SEARCHES_MAX))
    tails: TailCount = field(default_factory=TailCount)

    @property
    def hidden(self) -> HiddenColumns:
        return self.sources.hidden
