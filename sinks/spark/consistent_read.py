"""All tables of a lake at one consistent cut: `tables_at("./lake", pipeline="shop")`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import ObjectStore, names_below
from headwater.sinks.object_names import lake_name
from headwater.sinks.sink import ConsistentCut
from headwater.sinks.spark.sink_state import DIRECTORY, SinkStateLog
from headwater.sinks.spark.storage_location import place_of


@dataclass(frozen=True, slots=True)
class TablesAt:
    """The version of each table at a cut.

    A Delta version is the value of `versionAsOf` and `DeltaTable(..., version=...)`; an Iceberg
    version is a sequence number.
    """

    cut: ConsistentCut
    versions: Mapping[TableId, int]
    left_out: frozenset[TableId] = frozenset()
    """Tables without a version at this cut, because the source was reading them again."""


def tables_at(
    path: str,
    *,
    pipeline: str,
    sink: str = "",
    cut: int | None = None,
    s3: S3Settings | None = None,
) -> TablesAt:
    """Returns the newest cut that all tables have, or the newest one at or before `cut`.

    `cut` is an offset of `__headwater_commits`. The sink needs `consistent_cut: true`. Name the
    sink if several sinks of the pipeline share the path.
    """
    place = place_of(path, s3 or S3Settings(), directory=Path.cwd())
    sink = sink or _only_sink(place.store, pipeline, path)
    for entry in reversed(SinkStateLog(place.store, pipeline=pipeline, sink=sink).entries()):
        held = entry.cut
        if held is not None and entry.versions and (cut is None or held.offset <= cut):
            return TablesAt(held, entry.versions, entry.left_out)
    raise SinkRejected(
        "the path has no consistent cut",
        hint="set `consistent_cut: true` in the sink",
        path=path,
        pipeline=pipeline,
    )


def _only_sink(store: ObjectStore, pipeline: str, path: str) -> str:
    """Returns the pipeline's sink that keeps its tables at this path."""
    start = f"{DIRECTORY}/{lake_name(pipeline)}."
    found = {
        name.removeprefix(start).partition("/")[0]
        for name in names_below(store, DIRECTORY)
        if name.startswith(start)
    }
    state_logs = {each: SinkStateLog(store, pipeline=pipeline, sink=each) for each in sorted(found)}
    sinks = [name for name, state_log in state_logs.items() if not state_log.head().recipe]
    if len(sinks) > 1:
        raise SinkRejected(
            "several sinks of the pipeline keep their tables at this path",
            hint=f'name one of them: sink="{sinks[0]}"',
            sinks=", ".join(sinks),
        )
    return sinks[0] if sinks else ""
