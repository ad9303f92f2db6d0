"""All tables of a lake as of one moment of their source: `tables_at("./lake", pipeline="shop")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core_log.errors import SinkRejected
from core_log.s3.settings import S3Settings
from core_log.table_schema import TableId
from sinks.sink import Cut
from sinks.spark.ledger import Ledger
from sinks.spark.place import place_of


@dataclass(frozen=True, slots=True)
class TablesAt:
    """Which version of each table belongs to a cut. A version of Delta is what `versionAsOf` and
    `DeltaTable(..., version=...)` take; one of Iceberg is a sequence number."""

    cut: Cut
    versions: Mapping[TableId, int]


def tables_at(
    path: str,
    *,
    pipeline: str,
    sink: str = "spark",
    cut: int | None = None,
    s3: S3Settings | None = None,
) -> TablesAt:
    """The newest cut that all tables have, or the newest one that is no later than `cut`, an
    offset in the log's `__headwater_commits`. The sink has to have `consistent_cut: true`."""
    place = place_of(path, s3 or S3Settings(), directory=Path.cwd())
    for entry in reversed(Ledger(place.store, pipeline=pipeline, sink=sink).entries()):
        held = entry.cut
        if held is not None and entry.versions and (cut is None or held.offset <= cut):
            return TablesAt(held, entry.versions)
    raise SinkRejected(
        "no consistent cut is known there",
        hint="set `consistent_cut: true` in the sink",
        path=path,
        pipeline=pipeline,
    )
