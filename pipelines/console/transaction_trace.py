"""All rows that one transaction of the source changed, found by the log transaction with them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.pipelines.console.table_past import ShownChange, shown_changes
from headwater.pipelines.journal.commits import Commit, commits_home, decode_commits
from headwater.pipelines.journal.inventory import every_schema_of
from headwater.pipelines.loops.deliver.decoder import RecordDecoder

ROWS_MAX = 10_000
BEFORE_MS = 60_000
"""The commit record is appended behind the rows, in the same transaction of the log."""
FETCH_BYTES = 256 << 10


async def trace(
    log: Log, pipeline: str, place: TopicPartition, offset: int, *, appended_ms: int
) -> dict[str, Any]:
    """Returns the transaction whose change has this offset, its rows, and its position."""
    commit = await _commit_of(log, pipeline, place, offset, appended_ms=appended_ms)
    schemas = await every_schema_of(log, pipeline)
    if place.topic not in schemas:
        raise ConfigError("the topic is none of the pipeline's", topic=place.topic)
    decoder = RecordDecoder(log)
    await decoder.look([each.topic for each in commit.touched if each.topic in schemas])
    rows: list[tuple[TopicPartition, ShownChange]] = []
    for at, touched in commit.touched.items():
        if at.topic not in schemas:
            continue
        limit = FetchLimit(bytes_max=max(touched.bytes, FETCH_BYTES), wait_ms_max=0)
        reached = touched.first
        while reached < touched.end and len(rows) <= ROWS_MAX:
            for each in await log.fetch({at: reached}, limit=limit, isolation=Isolation.COMMITTED):
                columns = arrow_codec.decode(each.data, from_offset=reached, partition=at)
                found = await shown_changes(decoder, at, columns, schemas[at.topic].schema)
                rows += [(at, change) for change in found if change.offset < touched.end]
                reached = each.next_offset
    chosen = next((change for at, change in rows if at == place and change.offset == offset), None)
    if chosen is None:
        raise ConfigError("the log has no change at this offset", topic=place.topic, offset=offset)
    source_commit = _commit_text(chosen.at)
    ours = [(at, change) for at, change in rows if _commit_text(change.at) == source_commit]
    ours.sort(key=lambda pair: _index(pair[1].at))
    return {
        "at": source_commit,
        "committed_ms": chosen.committed_ms,
        "appended_ms": chosen.appended_ms,
        "positions": dict(commit.positions),
        "is_whole": len(rows) <= ROWS_MAX,
        "changes": [
            {
                "table": str(schemas[at.topic].schema.table),
                "topic": at.topic,
                "columns": list(schemas[at.topic].schema.names),
                **asdict(change),
            }
            for at, change in ours[:ROWS_MAX]
        ],
    }


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
    tasks: Mapping[str, Any], changes: list[dict[str, Any]]
) -> list[dict[str, str | bool]]:
    """Returns for each sink whether it has applied all of these changes."""
    found: list[dict[str, str | bool]] = []
    for name, facts in tasks.items():
        if name in ("source", "verify"):
            continue
        offsets = facts["positions"]
        has_all = all(
            int(offsets.get(f"{each['topic']}-{each['partition']}", 0)) > each["offset"]
            for each in changes
        )
        found.append({"sink": name, "is_applied": has_all})
    return found


def _commit_text(at: str) -> str:
    return at.rpartition("#")[0]


def _index(at: str) -> int:
    index = at.rpartition("#")[2]
    return int(index) if index.isdigit() else 0
