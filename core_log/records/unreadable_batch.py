"""Finds the stored batch that cannot be read, and says where it is and how to go on after it."""

from collections.abc import Callable

from headwater.core_log.foundation.errors import (
    CorruptBatch,
    DecodeError,
    HeadwaterError,
    UnreadableBatch,
)
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.compression import Buffer
from headwater.core_log.records.record_codec import iterate_batches

UNREADABLE = (DecodeError, CorruptBatch)
"""Errors of reading a batch whose content differs from its header or from what was stored."""


def find_unreadable(
    error: HeadwaterError,
    data: Buffer,
    read: Callable[[memoryview], object],
    partition: TopicPartition | None,
) -> HeadwaterError:
    """Returns the error of the first batch that `read` cannot read alone, with its place. Returns
    `error` if each batch can be read alone."""
    for batch in iterate_batches(data):
        try:
            read(batch)
        except UNREADABLE as alone:
            return unreadable(alone, batch, partition)
    return error


def unreadable(
    error: HeadwaterError, batch: Buffer, partition: TopicPartition | None
) -> UnreadableBatch:
    header, place = BatchHeader.read(batch), {} if partition is None else partition._asdict()
    hint = ""
    if partition is not None and partition.topic.startswith("__"):
        directory = f"DATA/log/{partition.topic}-{partition.partition}"
        hint = f"restore it, or stop who has the log, then: headwater log mend {directory}"
    elif partition is not None:
        follows = f"--partition {partition.partition} --from {header.next_offset}"
        hint = f"what follows it: headwater tail {partition.topic} {follows}"
    return UnreadableBatch(
        f"a stored batch cannot be read: {error.problem}",
        hint=hint,
        **place,
        offset=header.base_offset,
        last_offset=header.last_offset,
        **{
            name: fact
            for name, fact in error.facts.items()
            if name not in ("position", "base_offset")
        },
    )
