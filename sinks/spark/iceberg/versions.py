"""Versions of an Iceberg table: what each says of itself, and which of them are forgotten."""

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from headwater.core_log.model.log import TopicPartition
from headwater.sinks.spark.identity import PREFIX
from headwater.sinks.spark.sink_state import ENTRIES_KEPT
from headwater.sinks.spark.table import TableCommit, Version

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


AT = PREFIX + "at"
NEWEST = ENTRIES_KEPT + 100
"""So many versions stay, all of those among them that cuts of the ledger name: a slice makes one,
and compaction some."""
SPANS = 200
"""Into so many the time is divided that older versions stay, and one of each does."""
AT_ONCE = 5_000
"""Not more are forgotten by one commit, the oldest first: pyiceberg compares each of them with all
versions that there are."""


def newest_first(snapshots: Collection["Snapshot"]) -> list["Snapshot"]:
    return sorted(snapshots, key=lambda each: each.sequence_number or 0, reverse=True)


def said_of(change: TableCommit) -> dict[str, str]:
    """What a version says of itself for `version_of`."""
    said: dict[str, Any] = {
        "stands": [
            [part.topic, part.partition, at.next_offset] for part, at in change.stands.items()
        ]
    }
    if change.cut is not None:
        cut = change.cut
        said |= {"cut": cut.offset, "committed_ms": cut.committed_ms}
        said |= {"positions": dict(cut.positions)}
    if change.becomes is not None:
        said |= {"swapped": True}
    return {AT: json.dumps(said)}


def version_of(snapshot: "Snapshot") -> Version:
    said = _said_by(snapshot)
    return Version(
        version=snapshot.sequence_number or 0,
        committed_ms=snapshot.timestamp_ms,
        operation=str(snapshot.summary.operation.value) if snapshot.summary else "",
        cut=said.get("cut"),
        source_ms=said.get("committed_ms"),
        positions=said.get("positions", {}),
        stands={TopicPartition(topic, part): at for topic, part, at in said.get("stands", ())},
    )


def find_removable(
    snapshots: Collection["Snapshot"], *, older_than_ms: int, now_ms: int
) -> Sequence["Snapshot"]:
    """Those that are too old, and most of the others. Every commit writes down all versions that
    there are, and would take the longer the more there are: a week of one every ten seconds is
    60,480 of them. A swap and what it took the place of stay: a person may ask for that."""
    found: list[Snapshot] = []
    swaps = [each for each in snapshots if _said_by(each).get("swapped")]
    wanted = {id for each in swaps for id in (each.snapshot_id, each.parent_snapshot_id)}
    span_ms = max(older_than_ms // SPANS, 1)
    last = None
    for number, each in enumerate(newest_first(snapshots)):
        if each.timestamp_ms < now_ms - older_than_ms:
            found.append(each)
        elif number >= NEWEST:
            span = each.timestamp_ms // span_ms
            if span == last and each.snapshot_id not in wanted:
                found.append(each)
            last = span
    return found[-AT_ONCE:]


def _said_by(snapshot: "Snapshot") -> dict[str, Any]:
    summary = snapshot.summary
    text = None if summary is None else summary.additional_properties.get(AT)
    said: dict[str, Any] = {} if text is None else json.loads(text)
    return said


class RememberingCatalog(SqlCatalog):
    """The database says in which file the newest version of a table stands; a file of that name
    always says the same. Remembers one, as each of our tables has a catalog of its own."""

    _remembered: tuple[str, TableMetadata] | None = None

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        self._remembered = response.metadata_location, response.metadata
        return response

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """Private to pyiceberg: should another version not call it, files are only read again."""
        location, remembered = orm_table.metadata_location, self._remembered
        if location is None or remembered is None or remembered[0] != location:
            found = super()._convert_orm_to_iceberg(orm_table)
            self._remembered = found.metadata_location, found.metadata
            return found
        metadata = remembered[1]
        return Table(
            (orm_table.table_namespace, orm_table.table_name),
            metadata,
            location,
            self._load_file_io(metadata.properties, location),
            self,
        )


def remembering(catalog: Catalog) -> Catalog:
    """In the place of one that pyiceberg has made of settings and of its own files of them."""
    catalog.close()
    return RememberingCatalog(catalog.name, **catalog.properties)
