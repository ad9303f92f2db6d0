"""Tables that match the file and cannot be captured: each is left out alone, with its hint."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.connectors.postgres.publication.published_tables import Publication
from headwater.connectors.postgres.publication.replica_identity import (
    NO_IDENTITY,
    OF_VIRTUAL,
    identities_of,
    identity_cure,
    reason_of,
)
from headwater.connectors.postgres.server.connection import PgConnection
from headwater.core_log.foundation.errors import Diagnostic, first_names
from headwater.core_log.model.table_schema import TableId

if TYPE_CHECKING:
    from headwater.connectors.postgres.catalog import CapturedTable

REFUSES = "once published, the server would refuse every UPDATE and DELETE of tables that"


@dataclass(frozen=True, slots=True)
class RefusedTable:
    """One table, and the reason why it cannot be captured."""

    oid: int
    table: TableId
    problem: str
    """Text for one message about several tables with the same problem."""
    hint: str


async def refused_of(
    connection: PgConnection, tables: Sequence["CapturedTable"], publication: Publication | None
) -> list[RefusedTable]:
    """Returns tables whose rows could not be identified in changes, or whose changes the server
    would refuse once they are published."""
    found = [each for table in tables for each in _by_key(table)]
    return found + await _by_identity(connection, tables, publication)


def _by_key(table: "CapturedTable") -> Iterator[RefusedTable]:
    key, sent = table.schema.key, set(table.identity_columns)
    if sent and (missing := [name for name in key if name not in sent]):
        yield RefusedTable(
            table.oid,
            table.table,
            f"changed or deleted rows are sent without {', '.join(missing)}, of their key",
            identity_cure([table.table]),
        )
    elif keyless := table.keyless_partitions:
        yield RefusedTable(
            table.oid,
            table.table,
            f"deleted rows of {first_names(keyless)}, of {table.table}, are sent without all of"
            f" their key ({', '.join(key)})",
            identity_cure(keyless),
        )


async def _by_identity(
    connection: PgConnection, tables: Sequence["CapturedTable"], publication: Publication | None
) -> list[RefusedTable]:
    """Checks only tables that are not published yet: the owner of a publication knows the effect on
    the others."""
    members = {part.table: each for each in tables for part in each.partitions}
    members |= {each.table: each for each in tables}
    kinds = await identities_of(connection, [each.table for each in tables])
    without = {name: kind for name, kind in kinds.items() if kind in (NO_IDENTITY, OF_VIRTUAL)}
    if not any(name in members for name in without):
        return []
    covered = frozenset[TableId]() if publication is None else publication.covered
    found: dict[TableId, tuple[CapturedTable, str, list[TableId]]] = {}
    for name, kind in without.items():
        table = members.get(name)
        if table is not None and table.table not in covered:
            found.setdefault(table.table, (table, kind, []))[2].append(name)
    return [
        RefusedTable(table.oid, table.table, f"{REFUSES} {why}", hint)
        for table, kind, names in found.values()
        for why, hint in [reason_of(kind, names)]
    ]


def findings_of(refused: Collection[RefusedTable]) -> Iterator[Diagnostic]:
    """Returns one diagnostic for all tables with the same reason and hint."""
    tables = dict[tuple[str, str], list[TableId]]()
    for each in refused:
        tables.setdefault((each.problem, each.hint), []).append(each.table)
    for (problem, hint), names in tables.items():
        are = "is" if len(names) == 1 else "are"
        yield Diagnostic(f"{first_names(sorted(names))} {are} left out: {problem}", hint)


def finding_of(refused: Collection[RefusedTable]) -> Diagnostic | None:
    """Returns one remark for all of them, while the source captures the others."""
    if not refused:
        return None
    tables = dict[str, list[TableId]]()
    for each in refused:
        tables.setdefault(each.problem, []).append(each.table)
    said = [f"{first_names(sorted(names))}: {problem}" for problem, names in tables.items()]
    cures = dict.fromkeys(each.hint for each in refused)
    return Diagnostic(
        f"tables match `tables` and are left out, as they cannot be captured: {'; '.join(said)}",
        f"{' '.join(filter(None, cures))} Or leave them out of `tables`. Once cured they are read"
        " by themselves",
        is_fatal=False,
        left_out=tuple(sorted({str(each.table) for each in refused})),
    )
