"""Which names tables had, so that one that had another for a while is read again."""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.snapshot.progress import PREFIX, TableSnapshotProgress, part_of
from headwater.core_log.model.changes import Positions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TableNames:
    """Follows the stream. A table goes on under its new name, in a topic of its own; should the old
    one come to be captured again, its topic lacks what happened meanwhile, as if it had left."""

    is_followed: bool = True
    """False where no rows are to be read again in any case."""
    _by_oid: dict[int, str] = field(default_factory=dict)
    """Empty for one whose present name the file leaves out."""
    _known: set[str] = field(default_factory=set)
    """Parts of the position that say of a name what has been read of whom."""
    _told: dict[str, str] = field(default_factory=dict)
    """Such parts that are new."""
    _owners: dict[str, int] = field(default_factory=dict)
    """Which table has each name by now: the stream may be older."""
    _spoilt: set[str] = field(default_factory=set)
    """Parts of names that tables gave up, or under which changes of others went out."""

    @classmethod
    def restore(
        cls,
        positions: Positions,
        tables: Collection[CapturedTable],
        *,
        back: Collection[CapturedTable] = (),
        is_followed: bool,
    ) -> "TableNames":
        """Those of the position come first, as the catalogue may be newer than the stream. `back`
        are tables of which older changes are left out."""
        names = {each.oid: str(each.table) for each in tables}
        known = {part_of(each.table) for each in tables}
        for part, text in positions.items():
            if part.startswith(PREFIX):
                known.add(part)
                ledger = TableSnapshotProgress.parse(text)
                if ledger.oid and not ledger.has_left:
                    names[ledger.oid] = part.removeprefix(PREFIX)
        owners = {str(each.table): each.oid for each in tables if each not in back}
        return cls(is_followed, names, known, _owners=owners)

    def saw(self, oid: int, name: str, *, is_chosen: bool) -> None:
        """What the stream calls the table from here on."""
        before = self._by_oid.get(oid)
        if before == name or (before is None and not is_chosen):
            return
        self._by_oid[oid] = name if is_chosen else ""
        if not self.is_followed:
            return
        part = f"{PREFIX}{name}"
        if is_chosen and part not in self._known:  # whoever has that name later is another table
            self._known.add(part)
            self._told[part] = TableSnapshotProgress(oid=oid).text()
        if is_chosen and self._owners.get(name, oid) != oid:
            self._spoilt.add(part)
            self._told[part] = TableSnapshotProgress().leave().text()
        if before:
            self._spoilt.add(f"{PREFIX}{before}")
            self._told[f"{PREFIX}{before}"] = TableSnapshotProgress().leave().text()
            logger.warning(
                "%s is called %s from here on: should it get its old name again, it is emptied and"
                " read anew with the next start",
                before,
                name,
            )

    def leaves(self, name: str) -> None:
        """From here on changes of the table are left out, so that all of it is to be read again,
        whatever a reading that is under way says."""
        part = f"{PREFIX}{name}"
        self._known.add(part)
        self._spoilt.add(part)
        self._told[part] = TableSnapshotProgress().leave().text()

    def news(self) -> Positions:
        """What is to go along with the next position."""
        told, self._told = self._told, {}
        return told

    def positions_of_snapshot(self, positions: Positions) -> Positions:
        """What a reading says of itself, but of names that are to be read again after it."""
        left = TableSnapshotProgress().leave().text()
        return {part: left if part in self._spoilt else each for part, each in positions.items()}
