"""Empty lakes for the Spark sink, read back by engines that are not ours."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.settings import S3Settings
from headwater.sinks.object_names import lake_table_directory
from headwater.sinks.sink import SinkContext
from headwater.sinks.spark.settings import SparkSettings
from headwater.sinks.spark.sink import SparkSink
from headwater.sinks.spark.storage_location import place_of
from tests.fakes import SimulatedClock
from tests.slices import schema_of

NOW_MS = 1_700_000_000_000


@dataclass(slots=True)
class LakeBench:
    """A directory or a bucket, and sinks of the pipeline `shop` on it."""

    path: str
    s3: S3Settings = field(default_factory=S3Settings)
    chosen: dict[str, Any] = field(default_factory=dict)
    pipeline: str = "shop"
    policy: dict[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=lambda: SimulatedClock(NOW_MS))

    def sink(self) -> SparkSink:
        settings = SparkSettings.model_validate({"path": self.path, "s3": self.s3, **self.chosen})
        context = SinkContext(self.pipeline, Path("/"), self.policy, self.clock)
        return SparkSink(settings, context)

    def address(self, table: str) -> str:
        namespace, _, name = table.rpartition(".")
        return f"{self.path}/{lake_table_directory(TableId(namespace, name), '{schema}.{table}')}"

    def table(self, table: str) -> pa.Table | None:
        """What deltalake reads, or pyiceberg."""
        if self.chosen.get("format") == "iceberg":
            return self._iceberg(table)
        from deltalake import DeltaTable, QueryBuilder

        place = place_of(self.address(table), self.s3, directory=Path("/"))
        if not DeltaTable.is_deltatable(place.root, place.options):
            return None
        held = DeltaTable(place.root, storage_options=place.options)
        found = pa.table(QueryBuilder().register("t", held).execute("SELECT * FROM t").read_all())
        return found.cast(pa.schema([(each.name, plain(each.type)) for each in found.schema]))

    def _iceberg(self, table: str) -> pa.Table | None:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
        from sqlalchemy.exc import OperationalError

        if not Path(self.path, "catalog.db").exists():
            return None
        uri, makes_none = f"sqlite:///{self.path}/catalog.db", {"init_catalog_tables": "false"}
        catalog = load_catalog("headwater", type="sql", uri=uri, **makes_none)
        try:
            held = catalog.load_table(("headwater", table.replace(".", "_")))
        except (NoSuchTableError, OperationalError):  # the catalog may have no tables yet
            return None
        found: pa.Table = held.scan().to_arrow()
        return found

    async def rows(self, table: str) -> list[dict[str, Any]]:
        found = self.table(table)
        if found is None:
            return []
        kept = [name for name in found.column_names if not name.startswith("_headwater_")]
        rows: list[dict[str, Any]] = found.select(kept).to_pylist()
        return rows

    def poison(self) -> tuple[Any, dict[str, Any]]:
        """A second so far away that it has no microseconds."""
        schema = schema_of("public.moments", id=pa.int64(), at=pa.timestamp("s"))
        return schema, {"id": 5, "at": 10**15}


def plain(kind: pa.DataType) -> pa.DataType:
    """What an engine reads as a view, as everybody else has it."""
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind
