"""One partition of an internal topic, as the coordinators that keep their state in it see it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.core_log.records.batch_header import BatchHeader


class ProducerStamp(NamedTuple):
    """Marks appended records as part of that producer's open transaction."""

    producer_id: int
    producer_epoch: int


class StoredRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch read back; the records of a control batch are its markers."""

    header: BatchHeader
    records: Sequence[StoredRecord]


class StateLog(Protocol):
    """Append-only to its owner: what was appended is read back in order after a restart."""

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        """Writes one batch, not yet synced; returns the end offset after it."""
        ...

    async def durable(self, end_offset: int) -> None:
        """Returns once everything below `end_offset` is on disk wherever it must be."""
        ...

    def read(self) -> Iterator[StoredBatch]:
        """Everything still held, from the start of the log to its end."""
        ...
