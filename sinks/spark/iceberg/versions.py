"""Versions of an Iceberg table: their properties, and which of them are expired."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate

from headwater.core_log.model.log import TopicPartition
from headwater.sinks.spark.sink_state import ENTRIES_KEPT
from headwater.sinks.spark.table import PREFIX, TableCommit, Version

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


AT = PREFIX + "at"
NUMBER = PREFIX + "sequence"
"""The sequence number of our newest version."""
NEWEST = ENTRIES_KEPT + 100
"""The newest versions that stay, including those of consistent cuts: a slice makes one, compaction
some."""
SPANS = 200
"""The number of spans of time in which one older version each stays."""
AT_ONCE = 5_000
"""Versions expired by one commit, oldest first: pyiceberg compares each with all versions."""


def newest_first(snapshots: Collection["Snapshot"]) -> list["Snapshot"]:
    return sorted(snapshots, key=lambda each: each.sequence_number or 0, reverse=True)


def said_of(change: TableCommit) -> dict[str, str]:
    """Returns a version's own properties, for `version_of`."""
    properties: dict[str, Any] = {
        "stands": [
            [part.topic, part.partition, at.next_offset] for part, at in change.offsets.items()
        ]
    }
    if change.cut is not None:
        cut = change.cut
        properties |= {"cut": cut.offset, "committed_ms": cut.committed_ms}
        properties |= {"positions": dict(cut.positions)}
    if change.becomes is not None:
        properties |= {"swapped": True}
    return {AT: json.dumps(properties)}


def version_of(snapshot: "Snapshot") -> Version:
    properties = _properties_of(snapshot)
    return Version(
        version=snapshot.sequence_number or 0,
        committed_ms=snapshot.timestamp_ms,
        operation=str(snapshot.summary.operation.value) if snapshot.summary else "",
        cut=properties.get("cut"),
        source_ms=properties.get("committed_ms"),
        positions=properties.get("positions", {}),
        offsets={
            TopicPartition(topic, part): at for topic, part, at in properties.get("stands", ())
        },
    )


def is_rolled_back(
    snapshots: Collection["Snapshot"], current: "Snapshot | None", *, newest: int
) -> bool:
    """Returns whether the current version does not come after the newest of ours. Tables of earlier
    releases do not store its number, `newest`: it is then known as long as the version is."""
    ours = (each.sequence_number or 0 for each in snapshots if AT in _additional(each))
    newest = max(newest, *ours, 0)
    by_id, at = {each.snapshot_id: each for each in snapshots}, current
    while at is not None and (at.sequence_number or 0) > newest:
        at = by_id.get(at.parent_snapshot_id or 0)
    return at is not None and (at.sequence_number or 0) < newest


def find_removable(
    snapshots: Collection["Snapshot"], *, older_than_ms: int, now_ms: int
) -> Sequence["Snapshot"]:
    """Returns the versions to expire: the too old ones, and most of the others.

    Every commit writes a list of all versions, so it slows with their number: a commit every ten
    seconds makes 60,480 in a week. A swap and the version before it stay, so that a person can go
    back.
    """
    found: list[Snapshot] = []
    swaps = [each for each in snapshots if _properties_of(each).get("swapped")]
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


def _additional(snapshot: "Snapshot") -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _properties_of(snapshot: "Snapshot") -> dict[str, Any]:
    text = _additional(snapshot).get(AT)
    properties: dict[str, Any] = {} if text is None else json.loads(text)
    return properties


class RememberingCatalog(SqlCatalog):
    """A catalog that remembers one metadata file.

    The database names the file of the newest version, and a file never changes. Each of our tables
    has its own catalog.
    """

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
        """Is private to pyiceberg: if another version does not call it, files are only read
        again."""
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
    """Returns such a catalog in place of one that pyiceberg made of settings and its own files."""
    catalog.close()
    return RememberingCatalog(catalog.name, **catalog.properties)
