"""Batches and logs in few words: the vocabulary of the tests."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, decode_batch, encode_batch
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from headwater.core_log.storage.store import Store
from tests.fakes import SimulatedClock

DATA = Path("/data")
TOPIC = "orders"
TOPIC_ID = UUID(int=7)
START_MS = 1_700_000_000_000


class Sequenced(NamedTuple):
    """A producer's stamp on a batch."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0
    is_transactional: bool = False


def batch(
    *values: bytes | str | None,
    timestamp_ms: int = START_MS,
    producer: Sequenced | None = None,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = 0,
) -> bytearray:
    """One encoded batch; each value is a record whose key is its place."""
    records = [
        PlainRecord(b"%d" % place, as_bytes(value), timestamp_ms=timestamp_ms)
        for place, value in enumerate(values)
    ]
    stamp = producer or Sequenced(-1, -1, -1)
    return encode_batch(
        records,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.epoch,
        base_sequence=stamp.sequence,
        is_transactional=stamp.is_transactional,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
    )


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def append(
    log: PartitionLog,
    *values: bytes | str | None,
    timestamp_ms: int = START_MS,
    producer: Sequenced | None = None,
    leader_epoch: int = 0,
    now_ms: int | None = None,
) -> int:
    """Appends one batch of these values as leader; its base offset."""
    data = batch(*values, timestamp_ms=timestamp_ms, producer=producer)
    return log.append(
        memoryview(data),
        BatchHeader.read(data),
        leader_epoch=leader_epoch,
        now_ms=timestamp_ms if now_ms is None else now_ms,
    )


def open_store(files: Files, *, data: Path = DATA, now_ms: int = START_MS) -> Store:
    return Store.open(data, files=files, clock=SimulatedClock(now_ms), random=Random(), node_id=1)


def open_log(
    files: Files,
    *,
    config: LogConfig | None = None,
    topic: str = TOPIC,
    partition: int = 0,
    data: Path = DATA,
) -> tuple[Store, PartitionLog]:
    """A store with one partition open."""
    store = open_store(files, data=data)
    log = store.open_partition(topic, partition, topic_id=TOPIC_ID, config=config or LogConfig())
    return store, log


def sync(log: PartitionLog, store: Store | None = None) -> None:
    """One group commit."""
    log.sync()
    if store is not None:
        store.write_recovery_points([log])


def values_of(log: PartitionLog, *, below: int | None = None) -> list[tuple[int, bytes | None]]:
    """Every record that is held, by offset, read as a consumer reads."""
    end = log.end_offset if below is None else below
    found: list[tuple[int, bytes | None]] = []
    offset = log.start_offset
    while offset < end:
        stretch = log.read(offset, below=end, bytes_max=1 << 20, at_least_one=True)
        if stretch is None:
            break
        found += values_in(stretch.read(), at_least=offset)
        offset = stretch.next_offset
    return found


def values_in(data: bytes, *, at_least: int = 0) -> list[tuple[int, bytes | None]]:
    """The records of whole batches, markers left out."""
    found: list[tuple[int, bytes | None]] = []
    position = 0
    while position < len(data):
        header = BatchHeader.read(data, position)
        _, records = decode_batch(data[position : position + header.total_bytes])
        if not header.is_control:
            found += [(each.offset, each.value) for each in records if each.offset >= at_least]
        position += header.total_bytes
    return found


def batches_in(data: bytes) -> Sequence[BatchHeader]:
    """The heads of whole batches."""
    found, position = [], 0
    while position < len(data):
        found.append(BatchHeader.read(data, position))
        position += found[-1].total_bytes
    return found
