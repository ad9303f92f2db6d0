"""Batches to write and values to read: the vocabulary of the contract suite."""

from collections.abc import Sequence

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)

NOW_MS = SystemClock().now_ms() - 60_000
PATIENT = FetchLimit(wait_ms_max=10_000)
AT_ONCE = FetchLimit(wait_ms_max=0)


def batch_of(*values: str, timestamp_ms: int = NOW_MS, compression: int = 0) -> Batch:
    """One record per value, its key the value as well."""
    records = [
        PlainRecord(value.encode(), value.encode(), timestamp_ms=timestamp_ms) for value in values
    ]
    data = bytearray(encode_batch(records, compression=compression))
    return Batch(data, len(records), timestamp_ms)


def values_in(fetched: Sequence[Fetched], partition: TopicPartition | None = None) -> list[str]:
    return [
        (record.value or b"").decode()
        for part in fetched
        if partition in (None, part.partition)
        for header, records in map(decode_batch, iterate_batches(part.data))
        if not header.is_control
        for record in records
    ]


async def read_to(
    log: Log,
    partition: TopicPartition,
    end: int,
    *,
    isolation: Isolation = Isolation.COMMITTED,
    start: int = 0,
    limit: FetchLimit = PATIENT,
) -> list[str]:
    """Every value from `start` on, waiting until `end` has been reached."""
    values: list[str] = []
    offset = start
    while offset < end:
        for part in await log.fetch({partition: offset}, limit=limit, isolation=isolation):
            values += values_in([part])
            offset = part.next_offset
    return values


async def read_all(log: Log, partition: TopicPartition) -> list[str]:
    """What committed readers see of everything that has been appended by now."""
    bounds = (await log.bounds([partition]))[partition]
    return await read_to(log, partition, bounds.end, start=bounds.start)
