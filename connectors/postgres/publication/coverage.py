"""Stores the publication's entries of captured tables, so that a gap is detected."""

from collections.abc import Collection, Mapping, Sequence

import orjson

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.publication.published_tables import OPERATIONS, Publication
from headwater.connectors.postgres.snapshot.progress import PREFIX, TableSnapshotProgress, part_of
from headwater.core_log.foundation.errors import (
    DecodeError,
    PositionLost,
    check_format,
    first_names,
)
from headwater.core_log.model.changes import Phase, Positions, Replacement
from headwater.core_log.model.table_schema import TableId, TableSchema

PART = "publication"
"""Part of the position: the publication's oid, and the entry of each table. A table that was
removed for a while gets another entry, even if the publication looks the same."""
FORMAT_VERSION = 1


def position_value(found: Publication | None, tables: Sequence[TableId]) -> str:
    """Returns the part's value while these tables are captured."""
    number = 0 if found is None else found.number
    entries = {str(each): _entry(found, each) for each in tables}
    said = {"version": FORMAT_VERSION, "number": number, "tables": entries}
    return orjson.dumps(said).decode()


def why_lost(positions: Positions, found: Publication | None) -> str:
    """Returns the reason if the publication was dropped for a while: changes of that time cannot be
    streamed by any other."""
    if PART not in positions or not (number := _parse(positions[PART])[0]):
        return ""
    if found is None:
        return "the publication is gone"
    return "" if found.number == number else "the publication was dropped and made anew"


def find_missed(
    positions: Positions, found: Publication | None, tables: Sequence[TableId]
) -> list[TableId]:
    """Returns captured tables with unsent changes: the publication lacks them, or got them
    again."""
    if PART in positions:
        _, known = _parse(positions[PART])
        if found is not None and found.operations < set(OPERATIONS):
            found = None
        return [each for each in tables if known.get(str(each), 0) not in (0, _entry(found, each))]
    return [each for each in tables if _is_captured(each, positions) and not _entry(found, each)]


def are_all_read(positions: Positions) -> bool:
    """Whether all rows of the captured tables have been read, except tables that are no longer
    captured."""
    known = _parse(positions[PART])[1] if PART in positions else {}
    progresses = [
        TableSnapshotProgress.parse(text)
        for part, text in positions.items()
        if part.startswith(PREFIX)
    ]
    is_begun = all(f"{PREFIX}{table}" in positions for table in known)
    return is_begun and all(each.is_done or each.has_left for each in progresses)


def missed_of(
    positions: Positions, found: Publication | None, tables: Sequence[CapturedTable]
) -> list[TableId]:
    """Returns the missed tables, except those that are read again in any case."""
    back = find_returned(positions, tables)
    return find_missed(positions, found, [each.table for each in tables if each not in back])


def not_sent(tables: Sequence[TableId], publication: str) -> PositionLost:
    return PositionLost(
        "the publication was without captured tables for a while, or sends another part of them"
        " by now: changes have been missed",
        publication=publication,
        tables=first_names(tables),
        hint="write `position_mismatch: resnapshot` into the source and run again: these tables"
        " are emptied and read anew",
    )


def _entry(found: Publication | None, table: TableId) -> int:
    """Returns the table's entry: that of its schema, or the publication's oid if it is FOR ALL
    TABLES; 0 if it is not in it."""
    if found is None or table not in found.covered:
        return 0
    return found.members.get(table) or found.schemas.get(table.namespace, found.number)


def _is_captured(table: TableId, positions: Positions) -> bool:
    said = positions.get(part_of(table))
    return said is not None and not TableSnapshotProgress.parse(said).has_left


def _parse(text: str) -> tuple[int, Mapping[str, int]]:
    """Parses the publication's oid, and its entries."""
    try:
        said = orjson.loads(text)
        check_format(said["version"], FORMAT_VERSION, "the state of a publication was stored")
        entries = {str(table): int(entry) for table, entry in said["tables"].items()}
        return int(said["number"]), entries
    except (KeyError, ValueError, TypeError, AttributeError):
        raise DecodeError("a part of the position is not one of a publication") from None


def positions_of_new(
    positions: Positions, tables: Sequence[CapturedTable], *, reads_new: bool
) -> dict[str, str]:
    """Returns the parts for tables without progress. They are stored together with the tables'
    entries: if a table is made anew before its rows are read, it has returned, and nothing of it
    is missed."""
    return {
        part: TableSnapshotProgress(oid=each.oid).text()
        for each in tables
        if reads_new and (part := part_of(each.table)) not in positions
    }


def positions_of_removed(
    positions: Positions, tables: Collection[CapturedTable], skipped: Collection[TableId] = ()
) -> dict[str, str]:
    """Returns the parts for tables that are no longer captured, or whose changes are skipped. The
    server may stop publishing those tables only after they are stored."""
    new = {part_of(each): TableSnapshotProgress().text() for each in skipped}
    positions = {**new, **positions}
    captured = {part_of(each.table) for each in tables}
    left = {
        part: TableSnapshotProgress.parse(text)
        for part, text in positions.items()
        if part.startswith(PREFIX) and part not in captured
    }
    return {
        part: progress.leave().text() for part, progress in left.items() if not progress.has_left
    }


def find_left(positions: Positions) -> set[str]:
    """Returns the names of tables that are not captured any more."""
    return {
        part.removeprefix(PREFIX)
        for part, text in positions.items()
        if part.startswith(PREFIX) and TableSnapshotProgress.parse(text).has_left
    }


def ends_of_rereads(
    positions: Positions, tables: Collection[CapturedTable]
) -> tuple[Replacement, ...]:
    """Returns the ends of all re-reads of tables that are not captured any more."""
    captured = {str(each.table) for each in tables}
    names = sorted(find_left(positions) - captured)
    return tuple(Replacement(TableSchema(_table_of(each), (), ()), Phase.GONE) for each in names)


def _table_of(name: str) -> TableId:
    namespace, _, table = name.partition(".")
    return TableId(namespace, table)


def find_returned(positions: Positions, tables: Sequence[CapturedTable]) -> list[CapturedTable]:
    """Returns tables that had left the file, were dropped and recreated, or swapped names with
    another: they are truncated in the log, and read again."""
    found = []
    for each in tables:
        progress = TableSnapshotProgress.parse(
            positions.get(part_of(each.table), TableSnapshotProgress().text())
        )
        if progress.has_left or progress.oid not in (0, each.oid):
            found.append(each)
    return found
