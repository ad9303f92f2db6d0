"""What needs no server: our codec, and compaction in its own process."""

import asyncio
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.figures import Figures
from benchmarks.stages import Bench
from benchmarks.wire import json_payload
from core_log import records
from core_log.batch import Batch, seal, stamp
from core_log.compression import Compression
from core_log.storage.cleaning import SegmentFacts
from core_log.storage.compaction import CompactionRequest, compact

NOW_MS = 1_700_000_000_000
TIMES = 5
SEGMENT_RECORDS = 1_000_000
DISTINCT_VALUES = 50_000


def codec(bench: Bench) -> None:
    """Records of 100 B with 16 B keys, uncompressed, in batches of a megabyte."""
    count = bench.scaled(1_000_000)
    keys = pa.array([b"key-%012d" % index for index in range(count)], pa.binary())
    values = pa.array([json_payload(index % 50_000, 100) for index in range(count)], pa.binary())
    encode_s = fastest(lambda: records.encode(keys, values, timestamps_ms=NOW_MS))
    data = numbered(records.encode(keys, values, timestamps_ms=NOW_MS), first_offset=0)
    decode_s = fastest(lambda: records.decode(data))
    bench.add("codec-encode", {"count": count, "per_second": count / encode_s})
    bench.add("codec-decode", {"count": count, "per_second": count / decode_s})


def fastest(work: Callable[[], object]) -> float:
    """Seconds of the best of a few runs: the others were disturbed."""
    took = []
    for _ in range(TIMES):
        started = time.perf_counter()
        work()
        took.append(time.perf_counter() - started)
    return min(took)


@dataclass(frozen=True, slots=True)
class Dirty:
    """A compacted topic as its writers left it."""

    row: str
    records: int
    keys: int
    value_bytes: int
    compression: Compression


DIRTY = (
    Dirty("compaction-plain", 8_000_000, 1_000_000, 101, Compression.NONE),
    Dirty("compaction-zstd", 1_500_000, 200_000, 700, Compression.ZSTD),
)


def compaction(bench: Bench) -> None:
    """The keys occur in random order; bytes are counted as the records are uncompressed."""
    for dirty in DIRTY:
        directory = bench.directory / dirty.row
        directory.mkdir()
        try:
            figures = compacted(directory, dirty, bench.scaled(dirty.records))
        finally:
            shutil.rmtree(directory)
        bench.add(dirty.row, figures)


def compacted(directory: Path, dirty: Dirty, count: int) -> Figures:
    chance = np.random.default_rng(1)
    texts = [event(index, dirty.value_bytes) for index in range(DISTINCT_VALUES)]
    names = pa.array([b"key-%012d" % index for index in range(dirty.keys)], pa.binary())
    values, segments, uncompressed, seen = pa.array(texts, pa.binary()), [], 0, set[int]()
    for first in range(0, count, SEGMENT_RECORDS):
        rows = min(SEGMENT_RECORDS, count - first)
        picked = chance.integers(0, dirty.keys, rows)
        seen.update(picked.tolist())
        batches = records.encode(
            names.take(pa.array(picked)),
            values.take(pa.array(chance.integers(0, DISTINCT_VALUES, rows))),
            timestamps_ms=NOW_MS,
            compression=dirty.compression,
        )
        data = numbered(batches, first_offset=first)
        (directory / f"{first:020}.log").write_bytes(data)
        segments.append(SegmentFacts(first, len(data), NOW_MS, NOW_MS))
        uncompressed += rows * (dirty.value_bytes + 16 + 9)
    request = CompactionRequest(
        directory=str(directory),
        segments=tuple(segments),
        first_dirty_offset=0,
        end_offset=count,
        now_ms=NOW_MS + 1000,
        delete_retention_ms=86_400_000,
        segment_bytes=1 << 30,
        index_bytes=10 << 20,
        index_interval_bytes=4096,
    )
    started = time.perf_counter()
    result = asyncio.run(compact(request))
    seconds = time.perf_counter() - started
    if (result.records, result.records_kept) != (count, len(seen)):
        raise RuntimeError(f"{len(seen)} of {count} records should have been kept: {result}")
    return {
        "count": count,
        "seconds": seconds,
        "per_second": count / seconds,
        "mb_per_second": uncompressed / seconds / 1e6,
        "bytes_per_key": result.map_bytes / result.keys,
    }


def event(index: int, size: int) -> bytes:
    """A row as an application, or for larger ones as a change capture, writes it."""
    if size < 500:
        return json_payload(index, size)
    head = (
        b'{"before":null,"after":%s,"source":{"version":"3.6.3.Final","connector":"postgresql",'
        b'"name":"shop","ts_ms":%d,"snapshot":"false","db":"shop","sequence":"[null,\\"%d\\"]",'
        b'"schema":"public","table":"orders","txId":%d,"lsn":%d,"xmin":null},"op":"u",'
        b'"ts_ms":%d,"transaction":null'
        % (json_payload(index, 300), NOW_MS + index, index * 977, index, index * 977, NOW_MS)
    )
    return head + b" " * (size - 1 - len(head)) + b"}"


def numbered(batches: list[Batch], *, first_offset: int) -> bytes:
    """The batches as a leader stores them."""
    for batch in batches:
        seal(batch.data)
        stamp(batch.data, base_offset=first_offset, leader_epoch=0)
        first_offset += batch.record_count
    return b"".join(batch.data for batch in batches)


ALONE: dict[str, Callable[[Bench], None]] = {"codec": codec, "compaction": compaction}
