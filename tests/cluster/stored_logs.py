"""Holds the files of all nodes against each other, once they have stopped."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.record_codec import iterate_batches


class StoredBatch(NamedTuple):
    base_offset: int
    epoch: int
    content: bytes


def stored_batches(data: Path, at: TopicPartition, *, below: int) -> list[StoredBatch]:
    """Everything below an offset in the segments of one replica, in order."""
    found = []
    for segment in sorted((data / f"{at.topic}-{at.partition}").glob("*.log")):
        for batch in iterate_batches(memoryview(segment.read_bytes())):
            content = bytes(batch)
            base_offset = int.from_bytes(content[:8], "big")
            epoch = int.from_bytes(content[12:16], "big")
            if base_offset < below:
                found.append(StoredBatch(base_offset, epoch, content))
    return found


def differences(replicas: Mapping[int, Path], ends: Mapping[TopicPartition, int]) -> Sequence[str]:
    """Committed prefixes, which reach to `ends`, are equal to the byte, and epochs never go back.
    All replicas have been in sync since. What came later, such as a marker that another coordinator
    has written again, may be on some of them only."""
    problems = list[str]()
    for at, end in ends.items():
        name = "{}-{}".format(*at)
        stored = {node: stored_batches(data, at, below=end) for node, data in replicas.items()}
        for node, batches in stored.items():
            problems += list(_disorder(f"{name} on node {node}", batches))
        first = max(batches[0].base_offset if batches else 0 for batches in stored.values())
        kept = {
            node: [each for each in batches if each.base_offset >= first]
            for node, batches in stored.items()
        }
        reference, *others = kept
        for other in others:
            problems += list(_unlike(name, reference, other, kept))
    return problems


def _disorder(name: str, batches: Sequence[StoredBatch]) -> Iterable[str]:
    for earlier, later in pairwise(batches):
        if later.epoch < earlier.epoch:
            yield f"epoch goes back: {name} from {earlier.epoch} to {later.epoch}"
        if later.base_offset <= earlier.base_offset:
            yield f"offset goes back: {name} from {earlier.base_offset} to {later.base_offset}"


def _unlike(
    name: str, one: int, other: int, kept: Mapping[int, Sequence[StoredBatch]]
) -> Iterable[str]:
    if len(kept[one]) != len(kept[other]):
        counts = f"{len(kept[one])} and {len(kept[other])} batches"
        yield f"replicas differ: {name} has {counts} on nodes {one} and {other}"
    for mine, theirs in zip(kept[one], kept[other], strict=False):
        if mine != theirs:
            places = (
                f"{mine.base_offset} (epoch {mine.epoch}), {theirs.base_offset} ({theirs.epoch})"
            )
            yield f"replicas differ: {name} at {places} on nodes {one} and {other}"
            return
