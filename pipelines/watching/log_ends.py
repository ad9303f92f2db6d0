"""How far the partitions reach at which sinks say they stand."""

from collections.abc import Iterable, Mapping

from core_log.log import Log, TopicPartition


async def read_ends(log: Log, partitions: Iterable[str]) -> Mapping[str, int]:
    """Decided ends, by `topic-partition`; our own bookkeeping is nobody's backlog."""
    named = {name: _partition(name) for name in partitions if not name.startswith("__")}
    wanted = {name: found for name, found in named.items() if found is not None}
    if not wanted:
        return {}
    bounds = await log.bounds(wanted.values())
    return {name: bounds[partition].stable for name, partition in wanted.items()}


def _partition(name: str) -> TopicPartition | None:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdigit() else None
