"""Tables that go and come back: what happened to them in between was never seen."""

from collections.abc import Collection, Sequence

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.snapshot.progress import PREFIX, TableSnapshotProgress, part_of
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableId


def positions_of_removed(
    positions: Positions, tables: Collection[CapturedTable], skipped: Collection[TableId] = ()
) -> dict[str, str]:
    """Parts of the position that say so of tables that are no longer captured, or whose changes
    are `skipped` without their ever having been. Once they are stored, and not before, the server
    may stop to publish those tables."""
    new = {part_of(each): TableSnapshotProgress().text() for each in skipped}
    positions = {**new, **positions}
    captured = {part_of(each.table) for each in tables}
    left = {
        part: TableSnapshotProgress.parse(text)
        for part, text in positions.items()
        if part.startswith(PREFIX) and part not in captured
    }
    return {part: ledger.leave().text() for part, ledger in left.items() if not ledger.has_left}


def find_returned(positions: Positions, tables: Sequence[CapturedTable]) -> list[CapturedTable]:
    """Tables that had left the file, or were dropped and made anew, or have changed names with
    another: they are to be emptied in the log, and read again."""
    found = []
    for each in tables:
        ledger = TableSnapshotProgress.parse(
            positions.get(part_of(each.table), TableSnapshotProgress().text())
        )
        if ledger.has_left or ledger.oid not in (0, each.oid):
            found.append(each)
    return found
