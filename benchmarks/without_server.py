"""What needs no server: our codec."""

import time
from collections.abc import Callable

import pyarrow as pa

from benchmarks.stages import Bench
from benchmarks.wire import json_payload
from core_log import records

TIMES = 5


def codec(bench: Bench) -> None:
    """Records of 100 B with 16 B keys, uncompressed, in batches of a megabyte."""
    count = bench.scaled(1_000_000)
    keys = pa.array([b"key-%012d" % index for index in range(count)], pa.binary())
    values = pa.array([json_payload(index % 50_000, 100) for index in range(count)], pa.binary())
    encode_s = fastest(lambda: records.encode(keys, values, timestamps_ms=1_700_000_000_000))
    batches = records.encode(keys, values, timestamps_ms=1_700_000_000_000)
    data = b"".join(batch.data for batch in batches)
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


ALONE: dict[str, Callable[[Bench], None]] = {"codec": codec}
