"""How far the partitions reach at which sinks say they stand."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from headwater.core_log.foundation.errors import LogRejected
from headwater.core_log.model.log import Log, TopicPartition


async def read_ends(log: Log, partitions: Iterable[str]) -> Mapping[str, int]:
    """Decided ends, by `topic-partition`; our own bookkeeping is nobody's backlog."""
    named = {name: _partition(name) for name in partitions if not name.startswith("__")}
    wanted = {name: found for name, found in named.items() if found is not None}
    if not wanted:
        return {}
    try:
        bounds = await log.bounds(wanted.values())
    except LogRejected:  # a former topic of a table is gone
        there = [part for part in wanted.values() if await _is_there(log, part)]
        bounds = await log.bounds(there)
        wanted = {name: part for name, part in wanted.items() if part in bounds}
    return {name: bounds[partition].stable for name, partition in wanted.items()}


async def _is_there(log: Log, partition: TopicPartition) -> bool:
    with suppress(LogRejected):
        return bool(await log.topic_id(partition.topic))
    return False


def _partition(name: str) -> TopicPartition | None:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdigit() else None
