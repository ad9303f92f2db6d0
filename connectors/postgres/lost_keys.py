"""Tables that have lost their key: each one is held alone until it has a key, and then read
again."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.row_keys import KeyHistory
from headwater.connectors.postgres.schema_history.table_definition import LOST_KEY
from headwater.connectors.postgres.server.connection import quoted_table
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.connectors.schema_changes import CHANGE_KEY
from headwater.core_log.foundation.errors import Diagnostic, first_names
from headwater.core_log.model.changes import Phase, Positions, Replacement
from headwater.core_log.model.table_schema import TableId


def held_of(positions: Positions, tables: Sequence[CapturedTable]) -> list[CapturedTable]:
    """Returns tables without a key whose topics have records with a key."""
    keys = KeyHistory.restore(positions, ())
    return [
        each
        for each in tables
        if not each.schema.key
        and (
            keys.of(each.oid)
            or keys.of(_progress_of(positions, each.table).oid)
            or awaits_key(positions, each.table)
        )
    ]


def awaits_key(positions: Positions, table: TableId) -> bool:
    """Whether the table was held and has not been read since."""
    progress = _progress_of(positions, table)
    return progress.reread == LOST_KEY and not progress.has_begun


def not_awaited(positions: Positions, tables: Sequence[CapturedTable]) -> list[CapturedTable]:
    """Returns tables for which a missed change matters: the others are read again in any case."""
    held = held_of(positions, tables)
    return [each for each in tables if each not in held and not awaits_key(positions, each.table)]


def parts_of_held(
    positions: Positions, held: Iterable[CapturedTable], *, after: int
) -> dict[str, str]:
    """Returns parts of the position that mark held tables, without the existing ones."""
    new = [each for each in held if not awaits_key(positions, each.table)]
    return {part_of(each.table): _lost(positions, each, after=after) for each in new}


def parts_of_cured(
    positions: Positions, tables: Iterable[CapturedTable], *, after: int
) -> dict[str, str]:
    """Returns the parts for tables that have a key again: they may have been out of the
    publication."""
    cured = [each for each in tables if awaits_key(positions, each.table)]
    return {part_of(each.table): _lost(positions, each, after=after) for each in cured}


def _lost(positions: Positions, table: CapturedTable, *, after: int) -> str:
    progress = replace(_progress_of(positions, table.table), oid=table.oid)
    return progress.to_be_read_again(LOST_KEY, (CHANGE_KEY,), after=after).text()


def pending(held: Iterable[CapturedTable]) -> tuple[Replacement, ...]:
    return tuple(Replacement(each.schema, Phase.PENDING, LOST_KEY) for each in held)


def finding_of(held: Collection[TableId]) -> Diagnostic | None:
    if not held:
        return None
    tables = sorted(held)
    full = " ".join(f"ALTER TABLE {quoted_table(each)} REPLICA IDENTITY FULL;" for each in tables)
    return Diagnostic(
        f"{first_names(tables)}: {LOST_KEY}, so changes are left out until it has one",
        "give it a primary key, or set its key under `keys` of the source and:"
        f" {full} Until then the server refuses UPDATE and DELETE. The table is then read again by"
        " itself",
        is_fatal=False,
        left_out=tuple(map(str, tables)),
    )


def _progress_of(positions: Positions, table: TableId) -> TableSnapshotProgress:
    said = positions.get(part_of(table))
    return TableSnapshotProgress() if said is None else TableSnapshotProgress.parse(said)
