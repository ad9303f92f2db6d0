"""Tables that had another name for a while, or come back: each is read again as a whole."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.table_definition import TableForm
from headwater.connectors.postgres.snapshot.progress import PREFIX, TableSnapshotProgress, part_of
from headwater.connectors.schema_changes import CHANGE_KEY
from headwater.core_log.model.changes import Positions

logger = logging.getLogger(__name__)

NOBODY = 0
"""The number of no table."""
RETURNED = "the table is another one than before, or was not captured for a while"
UNKNOWN_KEY = ("",)
"""A key that no table has: changes are left out until the table is read again."""


@dataclass(slots=True)
class TableNames:
    """Follows the stream. A renamed table continues in a topic of its new name. If the old name is
    captured again, its topic lacks the changes made meanwhile, so it counts as having left."""

    is_followed: bool = True
    """False if no rows are to be read again in any case."""
    _by_oid: dict[int, str] = field(default_factory=dict)
    """Empty for a table whose present name the file leaves out."""
    _known: set[str] = field(default_factory=set)
    """Parts of the position with the progress of the table that has the name."""
    _told: dict[str, str] = field(default_factory=dict)
    """New ones of these parts."""
    _owners: dict[str, int] = field(default_factory=dict)
    """The owner of each name at the start, which may be newer than the stream, or the first one."""
    _heirs: dict[str, int] = field(default_factory=dict)
    """Names whose topic has records of a former table, to the table that has the name now; NOBODY
    if none has it."""
    _spoilt: set[str] = field(default_factory=set)
    """Parts of names that tables gave up, or that changes of other tables were emitted under."""

    @classmethod
    def restore(
        cls,
        positions: Positions,
        tables: Collection[CapturedTable],
        *,
        back: Collection[CapturedTable] = (),
        is_followed: bool,
    ) -> "TableNames":
        """Restores the parts of the position first, because the catalog may be newer than the
        stream. `back` are tables of which older changes are left out."""
        names = {each.oid: str(each.table) for each in tables}
        heirs = {str(each.table): each.oid for each in back}
        known = {part_of(each.table) for each in tables}
        for part, text in positions.items():
            if part.startswith(PREFIX):
                known.add(part)
                progress = TableSnapshotProgress.parse(text)
                if progress.has_left:
                    heirs.setdefault(part.removeprefix(PREFIX), NOBODY)
                elif progress.oid:
                    names[progress.oid] = part.removeprefix(PREFIX)
        owners = {str(each.table): each.oid for each in tables if each not in back}
        return cls(is_followed, names, known, _owners=owners, _heirs=heirs)

    def saw(self, oid: int, name: str, *, is_chosen: bool) -> None:
        """Stores the stream's name of the table from here on."""
        before = self._by_oid.get(oid)
        if before == name or (before is None and not is_chosen):
            return
        self._by_oid[oid] = name if is_chosen else ""
        if not self.is_followed:
            return
        part = f"{PREFIX}{name}"
        if is_chosen and part not in self._known:  # a later owner of that name is another table
            self._known.add(part)
            self._told[part] = TableSnapshotProgress(oid=oid).text()
        if is_chosen and self._owners.setdefault(name, oid) != oid:
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

    def owner_of(self, name: str) -> int | None:
        """Returns the table whose key the topic of the name has, or will have once its rows are
        read; NOBODY if that is to come with the next start."""
        return self._heirs.get(name, self._owners.get(name))

    def leaves(self, name: str) -> None:
        """Leaves out changes of the table from here on, so that all of it is read again, in spite
        of a running snapshot."""
        part = f"{PREFIX}{name}"
        self._known.add(part)
        self._spoilt.add(part)
        self._told[part] = TableSnapshotProgress().leave().text()

    def news(self) -> Positions:
        """Returns the parts for the next position."""
        told, self._told = self._told, {}
        return told

    def positions_of_snapshot(self, positions: Positions) -> Positions:
        """Returns the parts of a snapshot, except for names that are to be read again after it."""
        left = TableSnapshotProgress().leave().text()
        return {part: left if part in self._spoilt else each for part, each in positions.items()}


def parts_of_returned(
    positions: Positions, returned: Iterable[CapturedTable], *, since: int
) -> dict[str, str]:
    """Returns the parts of the position. Streamed changes of commits before `since` are of the
    former table, or were missed in part."""
    found = {}
    for each in returned:
        kinds = (CHANGE_KEY,) if has_other_key(positions, each) else ()
        progress = TableSnapshotProgress(oid=each.oid).to_be_read_again(
            RETURNED, kinds, after=since
        )
        progress = replace(progress, since=since, is_permitted=not kinds)
        found[part_of(each.table)] = progress.text()
    return found


def parts_of_missed(missed: Iterable[CapturedTable], *, since: int) -> dict[str, str]:
    """Returns the parts of tables that are emptied and read anew."""
    anew = TableSnapshotProgress(since=since).text()
    return {part_of(each.table): anew for each in missed}


def forget_keys(
    positions: Positions, returned: Collection[CapturedTable], keys: KeyHistory
) -> None:
    """Lets changes under another key than the topic's wait for the re-read."""
    for each in returned:
        if has_other_key(positions, each):
            keys.learn(each.oid, UNKNOWN_KEY)


def find_rekeyed(positions: Positions, tables: Iterable[CapturedTable]) -> list[CapturedTable]:
    """Returns tables whose topic has another key: a re-read brings their rows into another
    topic."""
    return [
        each
        for each in tables
        if table_definition.part_of(each.table) in positions and has_other_key(positions, each)
    ]


def has_other_key(positions: Positions, table: CapturedTable) -> bool:
    """Returns whether the key may have other columns, names or types than the topic's."""
    said = positions.get(table_definition.part_of(table.table))
    if said is None:
        return True
    form, _ = TableForm.parse(said)
    columns = {each.number: (each.name, each.type_oid) for each in form.attributes}
    types = {each.name: each.type_oid for each in table.columns}
    now = [(name, types[name]) for name in table.schema.key]
    return [columns[number] for number in form.key] != now
