"""Checks the assignment of a topic's partitions to brokers, or makes one."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import NamedTuple

from headwater.core_log.model.replica_placement import Racks
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    DEFAULT,
    MorePartitions,
    NewTopic,
    RequestRefusal,
)
from headwater.core_log.replication.metadata import MetadataImage, Topic

Replicas = tuple[int, ...]


class Counts(NamedTuple):
    """Defaults for a topic without these numbers."""

    partitions: int
    replication_factor: int


def assign_new(
    image: MetadataImage, wanted: NewTopic, default: Counts
) -> list[Replicas] | RequestRefusal:
    """Returns the replicas of every partition of a new topic, in order."""
    if wanted.assignments:
        return _parse_given(image, wanted)
    if wanted.replication_factor < DEFAULT or wanted.replication_factor == 0:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be at least 1, or -1 for the default",
        )
    if wanted.partition_count < DEFAULT or wanted.partition_count == 0:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be at least 1, or -1 for the default",
        )
    factor = wanted.replication_factor
    return _deal(
        image,
        first=len(image.topics),
        count=partition_count(wanted, default),
        factor=default.replication_factor if factor == DEFAULT else factor,
    )


def assign_more(
    image: MetadataImage, topic: Topic, wanted: MorePartitions
) -> list[Replicas] | RequestRefusal:
    """Returns the replicas of the partitions to be added."""
    have = len(topic.partitions)
    if wanted.count == have:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)"
        )
    if wanted.count < have:
        return RequestRefusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic has {have} partition(s); {wanted.count} is not an increase",
        )
    count, factor = wanted.count - have, len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return _deal(image, first=have, count=count, factor=factor)
    if len(wanted.assignments) != count:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count} partition(s) to add, but {len(wanted.assignments)} assignment(s)",
        )
    for replicas in wanted.assignments:
        problem = _replicas_problem(image, replicas, factor)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return list(wanted.assignments)


def partition_count(wanted: NewTopic, default: Counts) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return default.partitions if wanted.partition_count == DEFAULT else wanted.partition_count


def _parse_given(image: MetadataImage, wanted: NewTopic) -> list[Replicas] | RequestRefusal:
    if wanted.replication_factor != DEFAULT or wanted.partition_count != DEFAULT:
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST,
            "Partition count and replication factor must be -1 when replicas are assigned",
        )
    by_partition = dict(wanted.assignments)
    if len(by_partition) < len(wanted.assignments):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "A partition has more than one assignment"
        )
    if by_partition.keys() != set(range(len(by_partition))):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assigned partitions must count up from 0"
        )
    factor = len(wanted.assignments[0][1])
    for replicas in by_partition.values():
        problem = _replicas_problem(image, replicas, factor)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return [by_partition[index] for index in range(len(by_partition))]


def _replicas_problem(image: MetadataImage, replicas: Sequence[int], factor: int) -> str | None:
    if not replicas:
        return "An assignment has no replicas"
    unknown = _unknown(replicas, image.brokers)
    if unknown:
        return f"No such broker: {unknown[0]}"
    if len(set(replicas)) < len(replicas):
        return "An assignment names a broker twice"
    if len(replicas) != factor:
        return f"An assignment has {len(replicas)} replica(s), others have {factor}"
    if not any(image.is_alive(each) for each in replicas):
        return "All brokers of an assignment are fenced"
    return None


def _unknown(replicas: Sequence[int], known: Collection[int]) -> list[int]:
    return [each for each in replicas if each not in known]


def _deal(
    image: MetadataImage, *, first: int, count: int, factor: int
) -> list[Replicas] | RequestRefusal:
    if factor > len(image.brokers):
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} is larger than the number of brokers, "
            f"{len(image.brokers)}",
        )
    alive = image.alive
    if not alive:
        return RequestRefusal(
            ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced"
        )
    racks = {each: broker.rack for each, broker in image.brokers.items()}
    return place(racks, alive=alive, first=first, count=count, replication_factor=factor)


def place(
    brokers: Racks, *, alive: Collection[int], first: int, count: int, replication_factor: int
) -> list[tuple[int, ...]]:
    """Assigns replicas in turn, so that leaders, the first of each, are spread evenly, and the
    replicas of a partition over racks. A broker without a rack is one of its own. A fenced broker
    gets a replica only where there are fewer live ones, as in Kafka: it copies it later."""
    assert replication_factor <= len(brokers), "each replica has a broker of its own"
    live = _in_turns({each: rack for each, rack in brokers.items() if each in alive})
    fenced = _in_turns({each: rack for each, rack in brokers.items() if each not in alive})
    placed = list[Replicas]()
    for index in range(first, first + count):
        replicas = list[int]()
        for around in (_from(live, index), _from(fenced, index)):
            while around and len(replicas) < replication_factor:
                used = Counter(brokers[each] for each in replicas if brokers[each] is not None)
                # of equals the next one in turn, since min takes the first
                replicas.append(min(around, key=lambda each: used[brokers[each]]))
                around.remove(replicas[-1])
        placed.append(tuple(replicas))
    return placed


def _from(brokers: Sequence[int], index: int) -> list[int]:
    """Returns the brokers, beginning with the one whose turn it is."""
    start = index % max(1, len(brokers))
    return [*brokers[start:], *brokers[:start]]


def _in_turns(brokers: Racks) -> list[int]:
    """Returns the brokers so that each rack has its turn."""
    racks = defaultdict[str | None, list[int]](list)
    alone = list[list[int]]()
    for each in sorted(brokers):
        if brokers[each] is None:
            alone.append([each])
        else:
            racks[brokers[each]].append(each)
    groups = sorted([*racks.values(), *alone])
    return [each for turn in zip_longest(*groups) for each in turn if each is not None]


NAME_LENGTH_MAX = 249  # with `-<partition>` appended, a directory name is at most 255 bytes long
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Returns the error of a topic's name, or None."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: {len(name)} characters, where {NAME_LENGTH_MAX} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return "Topic name is invalid: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def collision_key(name: str) -> str:
    """Returns an equal key for names that Kafka's metrics cannot tell apart ('.' and '_' are the
    same there)."""
    return name.replace(".", "_")
