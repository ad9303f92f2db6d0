"""How fast compaction goes: small uncompressed records, and zstd batches of large envelopes."""

# Run it on a quiet machine: python -m benchmarks.compaction [--rounds 5] [--directory DIR]

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.core_log.records.arrow_codec import encode
from headwater.core_log.records.batch_header import seal, stamp
from headwater.core_log.storage.compaction import (
    CompactionRequest,
    CompactionResult,
    SegmentFacts,
    compact,
)
from headwater.core_log.storage.segment import LOG, file_name

SEGMENT_BYTES = 1 << 30
KEY_BYTES = 16
RESULTS = Path(__file__).parent / "results" / "compaction.json"


@dataclass(frozen=True, slots=True)
class Load:
    """One log to compact."""

    name: str
    records: int
    keys: int
    value_bytes: int
    compression: int
    batch_bytes: int
    goal: str


LOADS = (
    Load(
        "126 B uncompressed, 1 MB batches", 8_000_000, 1_000_000, 100, 0, 1 << 20, "3 M records/s"
    ),
    Load("126 B uncompressed, 16 KB batches", 8_000_000, 1_000_000, 100, 0, 16 << 10, "-"),
    Load("700 B envelopes, zstd, 1 MB batches", 1_000_000, 250_000, 700, 4, 1 << 20, "150 MB/s"),
    Load("700 B envelopes, zstd, 64 KB batches", 1_000_000, 250_000, 700, 4, 64 << 10, "-"),
)
ENVELOPE = (
    b'{"before":null,"after":{"id":%012d,"name":"customer %06d","email":"c%d@example.org",'
    b'"balance":"%d.%02d","note":"%x"},"source":{"version":"1","connector":"postgres",'
    b'"name":"shop","ts_ms":1700000%06d,"snapshot":"false","db":"shop","schema":"public",'
    b'"table":"customers","txId":%d,"lsn":%d},"op":"u","ts_ms":1700000%06d}'
)


def values_of(load: Load, numbers: np.ndarray, random: np.random.Generator) -> pa.BinaryArray:
    if load.compression == 0:
        size = load.value_bytes
        data = random.integers(0, 256, len(numbers) * size, dtype=np.uint8)
        bounds = np.arange(len(numbers) + 1, dtype=np.int32) * size
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
    rows = []
    noises = random.integers(0, 1 << 62, len(numbers)).tolist()
    for number, noise in zip(numbers.tolist(), noises, strict=True):
        n = noise % 999_983
        filled = ENVELOPE % (number, n, number, n, n % 100, noise, n, noise, noise * 3, n)
        rows.append(filled.ljust(load.value_bytes, b" "))
    return pa.array(rows, pa.binary())


def batches_of(load: Load) -> Iterator[bytearray]:
    random, offset = np.random.default_rng(1), 0
    while offset < load.records:
        count = min(200_000, load.records - offset)
        numbers = random.integers(0, load.keys, count)
        keys = pa.array([b"%0*d" % (KEY_BYTES, number) for number in numbers.tolist()], pa.binary())
        values = values_of(load, numbers, random)
        for batch in encode(
            keys,
            values,
            timestamps_ms=1_700_000_000_000 + offset // 1000,
            compression=load.compression,
            batch_bytes_max=load.batch_bytes,
        ):
            stamp(batch.data, base_offset=offset, leader_epoch=0)
            seal(batch.data)
            offset += batch.record_count
            yield batch.data


def write_log(load: Load, directory: Path) -> CompactionRequest:
    """Closed segments as a broker would have left them, but for their indexes."""
    segments: list[SegmentFacts] = []
    base = offset = size = 0
    file = None
    for data in batches_of(load):
        if file is None or size + len(data) > SEGMENT_BYTES:
            if file is not None:
                file.close()
                segments.append(SegmentFacts(base, size, 0, 0))
            base, size = offset, 0
            file = (directory / file_name(base, LOG)).open("wb")
        file.write(data)
        size += len(data)
        offset += int.from_bytes(data[23:27]) + 1
    assert file is not None, "a load has records"
    file.close()
    segments.append(SegmentFacts(base, size, 0, 0))
    return CompactionRequest(
        directory=str(directory),
        segments=tuple(segments),
        first_dirty_offset=0,
        end_offset=offset,
        now_ms=1_800_000_000_000,
        delete_retention_ms=86_400_000,
        segment_bytes=SEGMENT_BYTES,
        index_bytes=10 << 20,
        index_interval_bytes=4096,
    )


async def compact_watched(request: CompactionRequest) -> tuple[CompactionResult, int]:
    """The result, and the most memory that the worker held."""
    work, peak = asyncio.create_task(compact(request)), 0
    while not work.done():
        peak = max(peak, *children_peaks(), 0)
        await asyncio.sleep(0.02)
    return work.result(), peak


def children_cpu_s() -> float:
    used = os.times()
    return used.children_user + used.children_system


def children_peaks() -> Iterator[int]:
    """Of the process image that runs now: what `getrusage` says includes the one before."""
    pid = os.getpid()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            for line in Path(f"/proc/{child}/status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    yield int(line.split()[1]) << 10


def measure(load: Load, directory: Path, rounds: int) -> dict[str, object]:
    request = write_log(load, directory)
    seconds, cpu_seconds, peak = [], [], 0
    for _ in range(rounds):
        begin, begin_cpu = time.perf_counter(), children_cpu_s()
        result, held = asyncio.run(compact_watched(request))
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(children_cpu_s() - begin_cpu)
        peak = max(peak, held)
    record_bytes = load.value_bytes + KEY_BYTES + 10
    return {
        "load": asdict(load),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "records_per_s": result.records / statistics.median(seconds),
        "uncompressed_bytes_per_s": result.records * record_bytes / statistics.median(seconds),
        "kept": result.records_kept,
        "bytes_before": result.bytes_before,
        "bytes_after": result.bytes_after,
        "keys": result.keys,
        "map_bytes_per_key": result.map_bytes / result.keys,
        "worker_peak_rss_bytes": peak,
    }


def print_row(row: dict[str, object], load: Load) -> None:
    seconds: list[float] = row["seconds"]  # type: ignore[assignment]
    print(
        f"{load.name:38} {row['records_per_s'] / 1e6:7.2f} M/s"  # type: ignore[operator]
        f" {row['uncompressed_bytes_per_s'] / 1e6:7.0f} MB/s"  # type: ignore[operator]
        f"  {min(seconds):5.2f} .. {max(seconds):5.2f} s"
        f"  CPU {statistics.median(row['cpu_seconds']):4.2f} s"  # type: ignore[arg-type]
        f"  map {row['map_bytes_per_key']:4.1f} B/key"
        f"  peak {row['worker_peak_rss_bytes'] / 1e6:4.0f} MB"  # type: ignore[operator]
        f"  goal {load.goal}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where to put some gigabytes for a while")
    parser.add_argument("--only", default="", help="loads whose name contains this")
    chosen = parser.parse_args()
    rows = []
    for load in (load for load in LOADS if chosen.only in load.name):
        directory = Path(tempfile.mkdtemp(dir=chosen.directory))
        try:
            row = measure(load, directory, chosen.rounds)
        finally:
            shutil.rmtree(directory)
        print_row(row, load)
        rows.append(row)
    conditions = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0], "rows": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(conditions, indent=1) + "\n")


if __name__ == "__main__":
    main()
