"""Where sources and sinks stand, and which position and time of the source each offset means."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.core_log.foundation.errors import HeadwaterError, failures_named
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.pipelines.terminal.output import printable, table
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.time_travel.history.as_of import STREAM, format_position, parse_position
from headwater.pipelines.time_travel.history.cut_points import ReportedOffsets, commits_below
from headwater.pipelines.time_travel.verify.table_selection import subjects_of
from headwater.sinks.sink import AppliedOffsets, TableVersion, Versioned

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

Facts = Mapping[str, Any]

VERSIONS_SHOWN = 10


async def offsets_meant(
    log: Log, pipeline: str, tasks: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """Returns the offset of every sink and partition, and what of the source is below it; `tasks`
    are the positions that `status` knows, by sink."""
    offsets = {
        task: {place: int(at) for part, at in found.items() if (place := place_of(part, at))}
        for task, found in tasks.items()
    }
    meant: dict[str, Any] = {}
    for task, of_task in offsets.items():
        reported = await commits_below(log, pipeline, of_task)
        meant[task] = {
            f"{place.topic}-{place.partition}": {
                "offset": at,
                **reported_facts(reported.get(place)),
            }
            for place, at in of_task.items()
        }
    return meant


async def sources_of_targets(loaded: "LoadedPipeline", log: Log) -> dict[str, list[str]]:
    """By target table the tables of the source that it has: routes rename and merge them."""
    return {
        str(subject.target): sorted(str(stored.schema.table) for stored in subject.sources)
        for subject in await subjects_of(loaded, log)
    }


async def versions_meant(
    loaded: "LoadedPipeline", log: Log, sinks: Mapping[str, object]
) -> dict[str, Any]:
    """The newest versions of every table in the targets that keep them; of one of which that cannot
    be told, why."""
    found: dict[str, Any] = {}
    for name, sink in sinks.items():
        if not isinstance(sink, Versioned):
            continue
        tables: dict[str, list[dict[str, Any]]] = {}
        for subject in await subjects_of(loaded, log):
            if reported := await _versions_of(sink, subject.target, log, loaded.name):
                tables[str(subject.target)] = reported
        found[name] = tables
    return found


async def _versions_of(
    sink: Versioned, table: TableId, log: Log, pipeline: str
) -> list[dict[str, Any]]:
    try:
        with failures_named(table=str(table)):
            versions = await sink.versions(table, newest=VERSIONS_SHOWN)
    except HeadwaterError as error:
        return [{"problem": error.statement}]
    return [version_facts(await _describe(log, pipeline, each)) for each in versions]


async def _describe(log: Log, pipeline: str, version: TableVersion) -> TableVersion:
    """One that ends at no boundary, as a rebuilt copy does, holds at least the last one below."""
    if version.committed_ms is not None:
        return version
    offsets = {part: applied.next_offset for part, applied in version.offsets.items()}
    reported = list((await commits_below(log, pipeline, offsets)).values())
    if not reported:
        return version
    return replace(
        version, committed_ms=reported[-1].committed_ms, positions=reported[-1].positions
    )


def place_of(part: str, at: str) -> TopicPartition | None:
    topic, _, number = part.rpartition("-")
    is_one = bool(topic) and number.isdigit() and at.isdigit()
    return TopicPartition(topic, int(number)) if is_one else None


def reported_facts(reported: ReportedOffsets | None) -> dict[str, Any]:
    if reported is None:
        return {"committed": None, "position": None}
    return {
        "committed": time_text(reported.committed_ms),
        "position": position_text(reported.positions),
    }


def version_facts(version: TableVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "offsets": offsets_text(version.offsets),
        "committed": None if version.committed_ms is None else time_text(version.committed_ms),
        "position": position_text(version.positions),
    }


def position_text(positions: Positions) -> str | None:
    """As `--as-of` takes it, where the source's history has an order; else all of its parts."""
    stream = positions.get(STREAM, "")
    if parse_position(stream) is not None:
        return format_position(stream)
    return ",".join(f"{part}={at}" for part, at in sorted(positions.items())) or None


def offsets_text(offsets: AppliedOffsets) -> str:
    """As `--as-of` takes them; of a table that several topics feed with the topics' names."""
    are_several = len({part.topic for part in offsets}) > 1
    return ",".join(
        f"{f'{part.topic}-' if are_several else ''}{part.partition}:{applied.next_offset}"
        for part, applied in sorted(offsets.items())
    )


def position_lines(snapshot: Facts) -> Iterator[str]:
    """For people."""
    for name, pipeline in snapshot["pipelines"].items():
        found = snapshot["positions"].get(name, {})
        for task, facts in pipeline["tasks"].items():
            yield f"POSITIONS {name} {task}"
            meant = found.get("sinks", {}).get(task)
            if not meant:
                for part, position in facts["positions"].items():
                    yield f"  {printable(part)}  {printable(position)}"
                continue
            rows = [
                (printable(part), str(each["offset"]), each["committed"], each["position"])
                for part, each in meant.items()
            ]
            head = ("PARTITION", "OFFSET", "COMMITTED", "POSITION OF THE SOURCE")
            yield from (f"  {line}" for line in table(head, rows))
        yield from _version_lines(name, found.get("versions", {}))


def _version_lines(pipeline: str, versions: Facts) -> Iterator[str]:
    for sink, tables in versions.items():
        for name, found in tables.items():
            yield f"VERSIONS {pipeline} {sink} {printable(name)}"
            head = ("VERSION", "OFFSETS", "COMMITTED", "POSITION OF THE SOURCE")
            rows = [
                (each["version"], each["offsets"], each["committed"], each["position"])
                for each in found
                if "problem" not in each
            ]
            yield from (f"  {line}" for line in (table(head, rows) if rows else ()))
            yield from (f"  {printable(each['problem'])}" for each in found if "problem" in each)
