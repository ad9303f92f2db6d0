"""Tells which tables are being read again as a whole, when that begins and when it ends."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.core_log.model.changes import Phase
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.journal.replacements import StoredReplacement
from headwater.pipelines.reports import Reporter, StateChanged, TaskState

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReplacementStates:
    """Of one life of a source."""

    pipeline: str
    unit: str
    report: Reporter
    told: dict[TableId, str] = field(default_factory=dict)

    def tell(self, stored: Mapping[TableId, StoredReplacement]) -> None:
        """What is new since the last time."""
        for table, each in stored.items():
            reason = reason_of(each)
            if self.told.get(table) == reason:
                continue
            is_held = each.phase is Phase.HELD
            if is_held:
                logger.error("%s: %s is held: %s", self.pipeline, table, each.why)
            elif table not in self.told:
                logger.info("%s: %s is read again: %s", self.pipeline, table, each.why)
            self.told[table] = reason
            self._state(table, TaskState.QUARANTINED if is_held else TaskState.REREADING, reason)
        for table in self.told.keys() - stored.keys():
            logger.info("%s: %s has been read again", self.pipeline, table)
            del self.told[table]
            self._state(table, TaskState.RUNNING)

    def _state(self, table: TableId, state: TaskState, reason: str = "") -> None:
        self.report(StateChanged(self.pipeline, self.unit, str(table), state, reason))


def reason_of(stored: StoredReplacement) -> str:
    if stored.phase is Phase.PENDING:
        return f"{stored.why}; its rows wait to be read again"
    return stored.why
