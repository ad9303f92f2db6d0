"""Compaction as the broker uses it: the worker's request and result."""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

from headwater.core_log.foundation.errors import CorruptLog, HeadwaterError, StorageFailed
from headwater.core_log.storage.aborted import AbortedTransaction
from headwater.core_log.storage.cleanable_range import SegmentFacts

MEMORY_BYTES_MAX = 128 << 20
"""Memory for the keys of one pass; a larger dirty part takes several passes."""

WORKER = "headwater.core_log.storage.compaction_worker"


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
