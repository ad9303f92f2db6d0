"""Tables whose rows the server cannot read: each waits alone, and is tried again by itself."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Protocol

from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected
from headwater.core_log.model.table_schema import TableId

UNREADABLE = "unreadable tables"
"""Name of the remark."""
RETRY_S = 60.0


class ReadableJob(Protocol):
    """The reading of one table."""

    is_unreadable: bool
    """The server could not read its rows; it is tried again later."""


@dataclass(slots=True)
class UnreadableTables:
    """The tables with the errors of their last tries. The stream goes on with their changes."""

    context: SourceContext
    stir: Callable[[], None]
    """Wakes readers."""
    _errors: dict[TableId, SourceRejected] = field(default_factory=dict)
    _due: dict[TableId, asyncio.TimerHandle] = field(default_factory=dict)

    def add(self, job: ReadableJob, table: TableId, error: SourceRejected) -> None:
        """The chunks in memory are the caller's to discard."""
        job.is_unreadable = True
        self._errors[table] = error
        self._tell()
        due = asyncio.get_running_loop().call_later(RETRY_S, self._try_again, job)
        self._due[table] = due
        self.stir()

    def keep(self, tables: Collection[TableId]) -> None:
        """All others have been read, or are gone."""
        if self._errors.keys() - tables:
            self._errors = {each: self._errors[each] for each in self._errors.keys() & tables}
            self._tell()

    def close(self) -> None:
        for due in self._due.values():
            due.cancel()

    def _try_again(self, job: ReadableJob) -> None:
        job.is_unreadable = False
        self.stir()

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
