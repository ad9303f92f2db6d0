"""What an append and a read cost above the system calls they are made of."""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from uuid import UUID

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.storage.files import OsFiles
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store

VALUE_BYTES = (100, 1_000, 64_000)
BYTES_MAX = 256 << 20
APPENDS_MAX = 20_000
READ_BYTES = 64 << 10
PRODUCER = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=Path, help="where to write; a disk, not tmpfs")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.directory) as directory:
        store = Store.open(
            Path(directory), files=OsFiles(), clock=SystemClock(), random=Random(), node_id=1
        )
        for number, size in enumerate(VALUE_BYTES):
            log = store.open_partition(
                f"values-{size}", 0, topic_id=UUID(int=number), config=LogConfig()
            )
            raw = OsFiles().open(Path(directory) / f"raw-{size}", create=True)
            print_costs(log, raw.fileno(), size, chosen.rounds)  # best of the rounds
        store.close(clean=False)


def print_costs(log: PartitionLog, raw: int, value_bytes: int, rounds: int) -> None:
    record = PlainRecord(b"key", bytes(value_bytes), timestamp_ms=1)
    batch = memoryview(encode_batch([record]))
    count = min(APPENDS_MAX, BYTES_MAX // len(batch))
    appends, writes, tails = [], [], []
    for number in range(rounds):
        headers = list(sequenced(batch, log.end_offset, count))
        appends.append(seconds(lambda: append_all(log, batch, headers)) / count)  # noqa: B023
        begin = number * count * len(batch)
        writes.append(seconds(lambda: write_all(raw, batch, begin, count)) / count)  # noqa: B023
    elapsed = seconds(lambda: tails.append(read_all(log)))
    reads = elapsed / tails[0]
    print(
        f"{value_bytes:>6} B values: append {min(appends) * 1e6:6.2f} us, "
        f"of which pwrite {min(writes) * 1e6:6.2f}; "
        f"read of {READ_BYTES >> 10} KiB in sequence, unsent {reads * 1e6:6.2f} us"
    )


def sequenced(batch: memoryview, sequence: int, count: int) -> Iterator[BatchHeader]:
    """An idempotent producer's heads, the usual and dearer case."""
    header = BatchHeader.read(batch)._replace(producer_id=PRODUCER, producer_epoch=0)
    return (header._replace(base_sequence=sequence + number) for number in range(count))


def append_all(log: PartitionLog, batch: memoryview, headers: list[BatchHeader]) -> None:
    for header in headers:
        log.append(batch, header, leader_epoch=0, now_ms=1)


def write_all(descriptor: int, batch: memoryview, position: int, count: int) -> None:
    for number in range(count):
        os.pwrite(descriptor, batch, position + number * len(batch))


def read_all(log: PartitionLog) -> int:
    offset = reads = 0
    while True:
        found = log.read(offset, below=log.end_offset, bytes_max=READ_BYTES, at_least_one=True)
        if found is None:
            return reads
        offset, reads = found.next_offset, reads + 1


def seconds(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
