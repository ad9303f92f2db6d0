"""Tells which tables are not read because somebody has paused their snapshots."""

from collections.abc import Collection
from dataclasses import dataclass

from headwater.connectors.source import Remark, SourceContext
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import first_names
from headwater.core_log.model.table_schema import TableId

PAUSED = "paused snapshots"
"""Name of the remark."""


@dataclass(slots=True)
class PausedSnapshots:
    context: SourceContext
    _told: Collection[TableId] | None = None

    def tell(self, tables: Collection[TableId]) -> None:
        """Reports the paused tables, if they are others than those of the last call."""
        if tables == self._told:
            return
        self._told = tables
        self.context.report(Remark(PAUSED, self._finding(sorted(map(str, tables)))))

    def _finding(self, names: list[str]) -> Diagnostic | None:
        if not names:
            return None
        table = names[0] if len(names) == 1 else "TABLE"
        return Diagnostic(
            f"the snapshot of {first_names(names)} is paused",
            f"headwater snapshot resume {self.context.pipeline}/{table}",
            is_fatal=False,
        )
