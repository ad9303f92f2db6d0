"""The tables of one sink at their path, independent of their format."""

import re
from dataclasses import dataclass, field

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.object_names import lake_name, lake_table_directory
from headwater.sinks.sink import SinkContext
from headwater.sinks.spark.lake_table_writer import LakeTableWriter
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink_state import SinkState, SinkStateLog
from headwater.sinks.spark.storage_location import StorageLocation, place_of
from headwater.sinks.spark.table import LakeTable

KEEP = ".keep"
"""Its file makes the directory in which the catalog is."""


@dataclass(frozen=True, slots=True)
class LakeShadow:
    """A shadow of a table, in a directory of the live one."""

    table: TableId
    generation: int
    newest: TableSchema | None = None
    """The schema whose types its columns get; None: the first one."""

    @property
    def directory(self) -> str:
        return f"shadow-g{self.generation}"


@dataclass(slots=True)
class Lake:
    """The lake: finds tables by name, and keeps those it has opened."""

    settings: SparkSettings
    context: SinkContext
    shadow: LakeShadow | None = None
    _kept: dict[TableId, LakeTableWriter] = field(default_factory=dict)

    @property
    def place(self) -> StorageLocation:
        return place_of(self.settings.path, self.settings.s3, directory=self.context.directory)

    def state_log(self) -> SinkStateLog:
        context, shadow = self.context, self.shadow
        suffix = "" if shadow is None else f".{lake_name(str(shadow.table))}.{shadow.directory}"
        return SinkStateLog(
            self.place.store, pipeline=context.pipeline, sink=f"{context.name}{suffix}"
        )

    def table(self, table: TableId) -> LakeTableWriter:
        found = self._kept.get(table)
        if found is None:
            place = self.place_of(table)
            lake = self._format(place, table)
            shadow = self.shadow or LakeShadow(table, 1)
            found = LakeTableWriter(
                table,
                lake,
                place,
                self.settings,
                self.context,
                generation=shadow.generation,
                newest=shadow.newest,
            )
            self._kept[table] = found
        return found

    def tables(self, head: SinkState) -> list[LakeTableWriter]:
        return [self.table(each) for each in sorted(head.tables())]

    def place_of(self, table: TableId) -> StorageLocation:
        live = self.place / lake_table_directory(table, self.settings.table)
        return live if self.shadow is None else live / self.shadow.directory

    def forget(self) -> None:
        self._kept.clear()

    def _format(self, place: StorageLocation, table: TableId) -> LakeTable:
        """Returns the table at this path, opened by its format."""
        if self.settings.format == "iceberg":
            from headwater.sinks.spark.iceberg.table import CatalogAddress, IcebergLakeTable

            catalog = self.settings.catalog
            uri = catalog.uri or f"sqlite:///{self.place.root}/catalog.db"
            if not catalog.uri and not self.place.is_local:
                raise ConfigError(
                    "an Iceberg lake in a bucket needs a catalog that is elsewhere",
                    hint="catalog: {uri: sqlite:///catalog.db}, or the address of a REST catalog",
                )
            name = place.root.removeprefix(f"{self.place.root}/")
            address = CatalogAddress(
                uri, catalog.namespace, re.sub(r"[./-]", "_", name), catalog.properties
            )
            if self.place.is_local and not catalog.uri and self.place.store.read(KEEP) is None:
                self.place.store.put(KEEP, b"")
            return IcebergLakeTable(place, address)
        from headwater.sinks.spark.delta.table import DeltaLakeTable

        return DeltaLakeTable(place)
