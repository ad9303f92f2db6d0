"""Compaction as the broker uses it: the range to clean, and the worker's request and result."""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from headwater.core_log.foundation.errors import CorruptLog, HeadwaterError, StorageFailed
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.log_config import LogConfig

OFFSETS_PER_SEGMENT_MAX = (1 << 31) - 1
MEMORY_BYTES_MAX = 128 << 20
"""Memory for the keys of one pass; a larger dirty part takes several passes."""

WORKER = "headwater.core_log.storage.compaction_worker"


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts about a closed segment that the choice needs."""

    base_offset: int
    size: int
    newest_ms: int
    """The largest timestamp of its records."""
    oldest_ms: int
    """The timestamp of its first batch; negative if there is none."""
    index_size: int = 0
    time_index_size: int = 0


@dataclass(frozen=True, slots=True)
class Cleanable:
    """Closed segments from the log's start to the first one that must not be changed."""

    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    """Everything below was cleaned before: no key occurs twice there."""
    end_offset: int
    """Start of the first segment that is not cleaned."""
    is_overdue: bool
    """`max.compaction.lag.ms` has passed for some of it."""

    @property
    def clean_bytes(self) -> int:
        return sum(s.size for s in self.segments if s.base_offset < self.first_dirty_offset)

    @property
    def dirty_bytes(self) -> int:
        return sum(s.size for s in self.segments if s.base_offset >= self.first_dirty_offset)

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        if self.is_overdue and self.dirty_bytes:
            return True
        return self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable(
    closed: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    active_offset: int,
    first_dirty_offset: int,
    stable_offset: int,
    now_ms: int,
) -> Cleanable | None:
    """Returns the part that may be cleaned now; None if all of it is clean, unstable or too young.

    `stable_offset` is the end of the synced and decided part. A first dirty offset outside of the
    log, after its start moved or its end was truncated, is corrected.
    """
    if not closed:
        return None
    first_dirty = min(max(first_dirty_offset, closed[0].base_offset), active_offset)
    ends = [*(segment.base_offset for segment in closed[1:]), active_offset]
    end_offset, taken = closed[0].base_offset, 0
    overdue_before = now_ms - max(config.max_compaction_lag_ms, 0)
    is_overdue = False
    for segment, end in zip(closed, ends, strict=True):
        is_dirty = end > first_dirty
        is_young = segment.newest_ms > now_ms - config.min_compaction_lag_ms
        if end > stable_offset or (is_dirty and config.min_compaction_lag_ms > 0 and is_young):
            break
        is_overdue = is_overdue or (is_dirty and 0 <= segment.oldest_ms < overdue_before)
        end_offset, taken = end, taken + 1
    if end_offset <= first_dirty:
        return None
    return Cleanable(tuple(closed[:taken]), first_dirty, end_offset, is_overdue)


def group_segments(
    segments: Iterable[SegmentFacts], *, end_offset: int, segment_bytes: int, index_bytes: int
) -> list[list[SegmentFacts]]:
    """Groups neighbours whose cleaned records surely fit into one segment and its indexes."""
    rest = list(segments)
    ends = [*(segment.base_offset for segment in rest[1:]), end_offset]
    groups: list[list[SegmentFacts]] = []
    size = index_size = time_index_size = 0
    for segment, end in zip(rest, ends, strict=True):
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
        fits = (
            bool(groups)
            and size <= segment_bytes
            and max(index_size, time_index_size) <= index_bytes
            and end - 1 - groups[-1][0].base_offset <= OFFSETS_PER_SEGMENT_MAX
        )
        if fits:
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size, index_size = segment.size, segment.index_size
        time_index_size = segment.time_index_size
    return groups


class LastRecord(NamedTuple):
    """The newest record of an active producer, whose batch header has its sequence and epoch."""

    epoch: int
    last_data_offset: int | None
    """None if its newest record is a marker."""


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """The request to the worker, which reads closed segments and nothing else."""

    directory: str
    segments: tuple[SegmentFacts, ...]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes: int
    index_interval_bytes: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """Every aborted transaction that may have records below `end_offset`."""
    last_records: Mapping[int, LastRecord] = field(default_factory=dict)
    memory_bytes_max: int = MEMORY_BYTES_MAX

    def ends(self) -> list[int]:
        """Returns the end of each segment."""
        return [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        known: dict[str, Any] = json.loads(line)
        known["segments"] = tuple(SegmentFacts(**each) for each in known["segments"])
        known["aborted"] = tuple(AbortedTransaction(*each) for each in known["aborted"])
        records = known["last_records"].items()
        known["last_records"] = {int(key): LastRecord(*value) for key, value in records}
        return cls(**known)


class Swap(NamedTuple):
    """One cleaned segment, complete and synced, that replaces all segments starting in [base,
    end)."""

    base_offset: int
    end_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The written segments and the offsets that would change; nothing has taken effect yet."""

    swaps: tuple[Swap, ...]
    first_dirty_offset: int
    """Older values below it are gone once all swaps are done, not before."""
    cleaned_to: int
    """No value at or above this offset removed an older one."""
    deletes_dropped_to: int
    """No tombstone at or above this offset was dropped; 0 if none was."""
    keys: int
    records: int
    records_kept: int
    tombstones_dropped: int
    markers_dropped: int
    """Ends of transactions of which no record was left."""
    unreadable: tuple[int, ...]
    """Starts of batches whose records contradict their headers; they stay unchanged."""
    bytes_before: int
    bytes_after: int
    map_bytes: int

    @classmethod
    def from_json(cls, answer: dict[str, Any]) -> Self:
        swaps = tuple(Swap(*swap) for swap in answer["swaps"])
        return cls(**answer | {"swaps": swaps, "unreadable": tuple(answer["unreadable"])})


async def compact(request: CompactionRequest) -> CompactionResult:
    """Runs the worker in its own process, and always ends it.

    Raises `CorruptLog` if a stored batch is damaged: nothing may be cleaned over it.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        WORKER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin and process.stdout and process.stderr, "all three are pipes"
    try:
        # The pipe stays open: its end tells the worker that the parent is gone.
        process.stdin.write(request.to_json())
        answer, complaint = await asyncio.gather(process.stdout.read(), process.stderr.read())
        status = await process.wait()
    finally:
        process.stdin.close()
        if process.returncode is None:
            process.kill()
            await process.wait()
    return read_answer(answer, complaint, status)


def read_answer(answer: bytes, complaint: bytes, status: int) -> CompactionResult:
    """Returns the result, or raises the worker's error."""
    if status or not answer:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise StorageFailed("compaction ended early", status=status, reason=last)
    known: dict[str, Any] = json.loads(answer)
    if "result" in known:
        return CompactionResult.from_json(known["result"])
    kind = CorruptLog if known["is_damage"] else HeadwaterError
    raise kind(known["problem"], **known["facts"])


def encode_result(result: CompactionResult) -> bytes:
    return json.dumps({"result": asdict(result)}).encode()


def encode_failure(error: HeadwaterError) -> bytes:
    facts = {name: value for name, value in error.facts.items() if name != "problem"}
    is_damage = isinstance(error, CorruptLog)
    known = {"problem": error.problem, "facts": facts, "is_damage": is_damage}
    return json.dumps(known, default=str).encode()
