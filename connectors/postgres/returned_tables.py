"""Tables that come back, or that have the name of another one by now: they are read again as a
whole."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.table_definition import TableForm
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.connectors.schema_policies import CHANGE_KEY
from headwater.core_log.model.changes import Positions

RETURNED = "it is another table than before, or was not captured for a while"
UNKNOWN_KEY = ("",)
"""A key that no table has: changes are left out until the table is read again."""


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
