"""All rows that one transaction of the source changed, found by the log transaction with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.console.hidden_columns import HiddenColumns
from headwater.pipelines.console.table_past import ShownChange, shown_change
from headwater.pipelines.journal.commits import Commit, commits_home, decode_commits
from headwater.pipelines.journal.inventory import every_schema_of
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.time_travel.history.key_history import decode_changes

ROWS_MAX = 10_000
BEFORE_MS = 60_000
"""The commit record is appended behind the rows, in the same transaction of the log."""
FETCH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class TracedChange:
    """One row that the transaction changed."""

    table: str
    topic: str
    columns: list[str]
    change: ShownChange


@dataclass(frozen=True, slots=True)
class SinkOfTransaction:
    """Whether a sink has applied all of a transaction."""

    sink: str
    is_applied: bool


@dataclass(frozen=True, slots=True)
class TracedTransaction:
    """One transaction of the source, as far as the log has it."""

    at: str
    committed_ms: int
    appended_ms: int
    positions: dict[str, str]
    """Positions of the source, behind the transaction of the log that holds it."""
    is_whole: bool
    changes: list[TracedChange]
    sinks: list[SinkOfTransaction]


async def trace(
    log: Log,
    pipeline: str,
    place: TopicPartition,
    offset: int,
    *,
    appended_ms: int,
    hidden: HiddenColumns,
    tasks: Mapping[str, Any],
) -> TracedTransaction:
    """Returns the transaction whose change has this offset, its rows, and who has applied them."""
    commit = await _commit_of(log, pipeline, place, offset, appended_ms=appended_ms)
    schemas = await every_schema_of(log, pipeline)
    if place.topic not in schemas:
        raise ConfigError("the topic does not belong to the pipeline", topic=place.topic)
    known = await hidden.known_schemas(log, pipeline)
    shown = {topic: hidden.view(pipeline, each.schema, known) for topic, each in schemas.items()}
    decoder = RecordDecoder(log)
    await decoder.look([each.topic for each in commit.touched if each.topic in schemas])
    rows: list[tuple[str, ShownChange]] = []
    for at, touched in commit.touched.items():
        if at.topic not in schemas:
            continue
        limit = FetchLimit(bytes_max=max(touched.bytes, FETCH_BYTES), wait_ms_max=0)
        reached = touched.first
        while reached < touched.end and len(rows) <= ROWS_MAX:
            for each in await log.fetch({at: reached}, limit=limit, isolation=Isolation.COMMITTED):
                columns = arrow_codec.decode(each.data, from_offset=reached, partition=at)
                rows += [
                    (at.topic, shown_change(change, shown[at.topic]))
                    for change in await decode_changes(decoder, at, columns)
                    if change.offset < touched.end
                ]
                reached = each.next_offset
    wanted = (place.topic, place.partition, offset)
    chosen = next((each for topic, each in rows if _place(topic, each) == wanted), None)
    if chosen is None:
        raise ConfigError("the log has no change at this offset", topic=place.topic, offset=offset)
    source_commit = _commit_text(chosen.at)
    ours = [
        TracedChange(str(schemas[topic].schema.table), topic, list(shown[topic].names), each)
        for topic, each in sorted(rows, key=lambda pair: _index(pair[1].at))
        if _commit_text(each.at) == source_commit
    ]
    return TracedTransaction(
        at=source_commit,
        committed_ms=chosen.committed_ms,
        appended_ms=chosen.appended_ms,
        positions=hidden.positions(pipeline, commit.positions),
        is_whole=len(rows) <= ROWS_MAX,
        changes=ours[:ROWS_MAX],
        sinks=applied_by(tasks, ours),
    )


def _place(topic: str, change: ShownChange) -> tuple[str, int, int]:
    return topic, change.partition, change.offset


async def _commit_of(
    log: Log, pipeline: str, place: TopicPartition, offset: int, *, appended_ms: int
) -> Commit:
    home = commits_home(pipeline)
    start = (await log.offsets_at([home], timestamp_ms=appended_ms - BEFORE_MS))[home]
    bounds = (await log.bounds([home]))[home]
    reached, limit = max(start, bounds.start), FetchLimit(bytes_max=FETCH_BYTES, wait_ms_max=0)
    while reached < bounds.stable:
        for each in await log.fetch({home: reached}, limit=limit, isolation=Isolation.COMMITTED):
            columns = arrow_codec.decode(each.data, from_offset=reached, partition=home)
            for _, commit in decode_commits(columns, pipeline):
                touched = commit.touched.get(place)
                if touched is not None and touched.first <= offset < touched.end:
                    return commit
            reached = each.next_offset
    raise ConfigError(
        "the transaction of this change is no longer known",
        hint="commits are kept as long as `log.history` says",
        topic=place.topic,
        offset=offset,
    )


def applied_by(
    tasks: Mapping[str, Any], changes: Sequence[TracedChange]
) -> list[SinkOfTransaction]:
    """Returns for each sink whether it has applied all of these changes."""
    found: list[SinkOfTransaction] = []
    for name, facts in tasks.items():
        if name in ("source", "verify"):
            continue
        offsets = facts["positions"]
        has_all = all(
            int(offsets.get(f"{each.topic}-{each.change.partition}", 0)) > each.change.offset
            for each in changes
        )
        found.append(SinkOfTransaction(name, has_all))
    return found


def _commit_text(at: str) -> str:
    return at.rpartition("#")[0]


def _index(at: str) -> int:
    index = at.rpartition("#")[2]
    return int(index) if index.isdigit() else 0
