"""One partition of an internal topic, for the coordinators that keep their state in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from headwater.core_log.records.batch_header import BatchHeader


class ProducerStamp(NamedTuple):
    """The producer whose open transaction the appended records belong to."""

    producer_id: int
    producer_epoch: int


class StoredRecord(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that was read back; the records of a control batch are its markers."""

    header: BatchHeader
    records: Sequence[StoredRecord]


class StateLog(Protocol):
    """An append-only log with one owner, which reads it back in order after a restart."""

    def append(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerStamp | None = None,
    ) -> int:
        """Writes one batch, not yet synced; returns the end offset after it."""
        ...

    async def durable(self, end_offset: int) -> None:
        """Returns when everything below `end_offset` is on disk on all required replicas."""
        ...

    def read(self) -> Iterator[StoredBatch]:
        """Returns everything that is still kept, from the start of the log to its end."""
        ...


class CoordinatorLog(StateLog, Protocol):
    """The log of a coordinator, which moves with the leader of its partition."""

    async def confirm_leadership(self) -> None:
        """Returns when it is sure that no other leader had taken over before this was called. An
        answer for which nothing is written waits for it."""
        ...
