"""How fast whole columns become record batches and come back, on one core."""

# Run it on a quiet machine: python -m benchmarks.codec [--rounds 15]

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.core_log.records.arrow_codec import decode, encode
from headwater.core_log.records.batch_header import Batch, seal, stamp
from headwater.core_log.records.record_headers import encode_headers

COLUMN_BYTES = 9 << 20
KEY_BYTES = 16
TIME_MS = 1_700_000_000_000
RESULTS = Path(__file__).parent / "results" / "codec.json"
LSN = b"0/16B3748"


@dataclass(frozen=True, slots=True)
class Case:
    """One shape of records; the goals are in millions of records a second."""

    name: str
    value_bytes: int
    batch_bytes: int = 1 << 20
    compression: int = 0
    headers: bytes = b"\0"
    encode_goal: float | None = None
    decode_goal: float | None = None


CASES = (
    Case("100 B, 1 MB batches", 100, encode_goal=8, decode_goal=5),
    Case("100 B, 16 KB batches", 100, batch_bytes=16 << 10),
    Case("100 B, two headers", 100, headers=encode_headers((("schema", b"17"), ("lsn", LSN)))),
    Case("100 B, zstd", 100, compression=4),
    Case("1 KB, 1 MB batches", 1000),
)


def columns_of(case: Case) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """Half of each value is noise, so that compression has something to do and not all."""
    count = records_of(case)
    random = np.random.default_rng(1)
    keys = [b"%0*d" % (KEY_BYTES, number) for number in random.integers(0, 10**6, count).tolist()]
    values = random.integers(0, 256, (count, case.value_bytes), dtype=np.uint8)
    values[:, case.value_bytes // 2 :] = 32
    return pa.array(keys, pa.binary()), pa.array([row.tobytes() for row in values], pa.binary())


def records_of(case: Case) -> int:
    return COLUMN_BYTES // (case.value_bytes + KEY_BYTES)


def measure(work: Callable[[], object], rounds: int, count: int) -> list[float]:
    """Millions of records a second, round by round."""
    work()
    rates = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        rates.append(count / (time.perf_counter() - begin) / 1e6)
    return rates


def measure_case(case: Case, rounds: int) -> dict[str, object]:
    keys, values = columns_of(case)

    def write() -> list[Batch]:
        batches = encode(
            keys,
            values,
            timestamps_ms=TIME_MS,
            headers=case.headers,
            compression=case.compression,
            batch_bytes_max=case.batch_bytes,
        )
        for batch in batches:
            seal(batch.data)
        return batches

    offset, data = 0, bytearray()
    for batch in write():
        stamp(batch.data, base_offset=offset, leader_epoch=0)
        offset += batch.record_count
        data += batch.data
    fetched = bytes(data)
    decoded = decode(fetched)
    assert decoded.keys == keys, "what is measured is right"
    assert decoded.values == values, "what is measured is right"
    return {
        "case": case.name,
        "bytes_per_record": len(fetched) / len(decoded),
        "encode": measure(write, rounds, len(keys)),
        "decode": measure(lambda: decode(fetched), rounds, len(keys)),
    }


def spread(rates: list[float], goal: float | None) -> str:
    text = f"{statistics.median(rates):6.2f} ({min(rates):5.2f} .. {max(rates):5.2f})"
    return f"{text}  goal {goal:g}" if goal else f"{text:30}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    rows = []
    print(f"{'millions of records a second':24} {'encode and seal':30} {'check and decode':30}")
    for case in CASES:
        row = measure_case(case, rounds)
        rows.append(row)
        rates = (row["encode"], case.encode_goal), (row["decode"], case.decode_goal)
        written, read = (spread(rate, goal) for rate, goal in rates)  # type: ignore[arg-type]
        print(f"{case.name:24} {written:32} {read}", flush=True)
    conditions = {"cores": os.cpu_count(), "load_average": os.getloadavg()[0], "rows": rows}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(conditions, indent=1) + "\n")


if __name__ == "__main__":
    main()
