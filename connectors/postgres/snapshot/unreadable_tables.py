"""Tables whose rows the server cannot read: each waits alone, and is tried again by itself."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeGuard

from headwater.connectors.postgres.snapshot.jobs import SnapshotJob
from headwater.connectors.postgres.snapshot.pending_chunks import PendingChunks
from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import HeadwaterError, SourceRejected
from headwater.core_log.model.table_schema import TableId

UNREADABLE = "unreadable tables"
"""Name of the remark."""
RETRY_S = 60.0
CHANGED = {"42P01", "42703", "3F000"}
"""The table, column or schema no longer exists: the next run looks again."""


def is_of_rows(error: HeadwaterError) -> TypeGuard[SourceRejected]:
    """Whether the server refused to read rows of one table, which says nothing of others."""
    state = error.facts.get("sqlstate")
    is_of_table = isinstance(error, SourceRejected) and "table" in error.facts
    return is_of_table and state is not None and state not in CHANGED


@dataclass(slots=True)
class UnreadableTables:
    """The tables with the errors of their last tries. The stream goes on with their changes."""

    context: SourceContext
    outbox: PendingChunks
    _errors: dict[TableId, SourceRejected] = field(default_factory=dict)
    _due: set[asyncio.TimerHandle] = field(default_factory=set)

    def add(self, job: SnapshotJob, error: SourceRejected) -> None:
        """Discards the chunks in memory; those that were emitted are not read again."""
        job.is_unreadable = True
        job.let_go()
        self.outbox.forget(job)
        self._errors[job.table.table] = error
        self._tell()
        due = asyncio.get_running_loop().call_later(RETRY_S, self._try_again, job)
        self._due.add(due)
        self.outbox.stir()

    def keep(self, tables: Collection[TableId]) -> None:
        """All others have been read, or are gone."""
        if self._errors.keys() - tables:
            self._errors = {each: self._errors[each] for each in self._errors.keys() & tables}
            self._tell()

    def close(self) -> None:
        for due in self._due:
            due.cancel()

    def _try_again(self, job: SnapshotJob) -> None:
        job.is_unreadable = False
        self.outbox.stir()

    def _tell(self) -> None:
        said = "; ".join(each.statement for each in self._errors.values())
        finding = Diagnostic(
            f"the server cannot read all rows of some tables: {said}",
            "mend the tables at the server, or leave them out of `tables`. Once mended they are"
            " read by themselves",
            is_fatal=False,
            left_out=tuple(sorted(map(str, self._errors))),
        )
        self.context.report(Remark(UNREADABLE, finding if self._errors else None))
