"""How fast rows become the keys and values of records and come back, on one core."""

# Run it on a quiet machine: python -m benchmarks.rows_codec [--rounds 5] [--only debezium-json]

import argparse
import os
import statistics
import time
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from headwater.core_log.model.changes import Operation, TableChanges, source_times
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.settings import WireSettings

ROW_COUNT = 50_000
NOW_US = 1_795_178_096_123_456
JSON_FORMATS = ("debezium-json", "flat-json")
ENCODE_GOAL, DECODE_GOAL = 1.0, 0.6

SCHEMA = TableSchema(
    TableId("shop", "orders"),
    (
        Column("id", pa.int64(), is_nullable=False),
        Column("customer_id", pa.int64(), is_nullable=False),
        Column("status", pa.string(), is_nullable=False),
        Column("email", pa.string()),
        Column("total", pa.decimal128(12, 2)),
        Column("item_count", pa.int32()),
        Column("is_gift", pa.bool_()),
        Column("note", pa.string()),
        Column("created_at", pa.timestamp("us")),
        Column("updated_at", pa.timestamp("us")),
    ),
    ("id",),
)


def changes_of(operations: pa.UInt8Array) -> TableChanges:
    """What the generator makes: a shop's orders, one commit for every three."""
    count = len(operations)
    random = np.random.default_rng(1)
    ids = np.arange(1_000_000, 1_000_000 + count)
    cents = pa.array(random.integers(100, 10**7, count))
    times = NOW_US - random.integers(0, 10**13, count)
    statuses = pa.array(["draft", "paid", "shipped", "returned"])
    columns = [
        pa.array(ids),
        pa.array(random.integers(1, 10**6, count)),
        statuses.take(pa.array(random.integers(0, 4, count))),
        pa.array([f"customer{number}@example.org" for number in ids.tolist()]),
        pa.array([Decimal(each).scaleb(-2) for each in cents.to_pylist()], pa.decimal128(12, 2)),
        pa.array(random.integers(1, 20, count), pa.int32()),
        pa.array(random.integers(0, 2, count).astype(bool)),
        pa.array([None if number % 3 else f"note {number}" for number in ids.tolist()]),
        pa.array(times).view(pa.timestamp("us")),
        pa.array(times + 1_000_000).view(pa.timestamp("us")),
    ]
    commits = pa.array(NOW_US - 10**6 + ids // 3)
    source = {
        "version": "0.1.0",
        "connector": "generator",
        "name": "shop",
        "ts_ms": source_times(commits)["ts_ms"],
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "ts_us": commits,
        "ts_ns": source_times(commits)["ts_ns"],
        "schema": "shop",
        "table": "orders",
        "txId": pa.array(ids // 3),
        "lsn": pa.array(ids),
        "xmin": None,
    }
    rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)
    return TableChanges(SCHEMA, rows, operations, source)


def inserts() -> pa.UInt8Array:
    return pa.array(np.full(ROW_COUNT, Operation.INSERT, np.uint8))


def mixed() -> pa.UInt8Array:
    choices = np.random.default_rng(2).choice([1, 1, 2, 2, 3], ROW_COUNT)
    return pa.array(choices.astype(np.uint8))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=JSON_FORMATS)
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    load = os.getloadavg()[0]
    print(f"10 columns, {ROW_COUNT:,} rows; load {load:.1f}")
    print("millions of rows per second of processor time, median (min .. max)")
    for form in (arguments.only,) if arguments.only else JSON_FORMATS:
        for name, operations in (("inserts", inserts()), ("mixed", mixed())):
            measure_format(form, name, operations, arguments.rounds)


def measure_format(form: str, name: str, operations: pa.UInt8Array, rounds: int) -> None:
    changes = changes_of(operations)
    codec = codec_for(WireSettings.model_validate({"value": form}), topic="shop.orders")
    encoded = codec.encode(changes, now_us=NOW_US)
    is_kept = encoded.values.is_valid()
    keys, values = encoded.keys.filter(is_kept), encoded.values.filter(is_kept)
    print(f"{form} {name}: {values.nbytes // len(values)} B a value", flush=True)
    written = measure(lambda: codec.encode(changes, now_us=NOW_US), rounds)
    show("encode", written, ENCODE_GOAL)
    assert codec.decode(keys, values, SCHEMA).rows == changes.rows, "what is measured is right"
    read = measure(lambda: codec.decode(keys, values, SCHEMA), rounds)
    show("decode", read, DECODE_GOAL)


def measure(work: Callable[[], object], rounds: int) -> list[float]:
    """Millions of rows per second of processor time, round by round."""
    work()
    rates = []
    for _ in range(rounds):
        begin = time.process_time()
        work()
        rates.append(ROW_COUNT / (time.process_time() - begin) / 1e6)
    return rates


def show(work: str, rates: list[float], goal: float) -> None:
    middle = statistics.median(rates)
    print(
        f"  {work:8}{middle:6.2f} ({min(rates):5.2f} .. {max(rates):5.2f})  goal {goal:g}",
        flush=True,
    )


if __name__ == "__main__":
    main()
