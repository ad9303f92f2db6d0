"""The one error tree: an error says what is so, what to do, and who can cure it."""

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar


class Cure(Enum):
    """Who can make the failed operation succeed."""

    TIME = "retry with backoff"
    OPERATOR = "stop this worker and wait for a person"


class HeadwaterError(Exception):
    """Root of every failure we expect. Anything else that escapes is a bug."""

    cure: ClassVar[Cure] = Cure.OPERATOR

    def __init__(self, problem: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.facts = problem, hint, facts

    @property
    def statement(self) -> str:
        """What is so, and where, without what to do."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.problem} ({facts})" if facts else self.problem

    def __str__(self) -> str:
        return f"{self.statement}\n  hint: {self.hint}" if self.hint else self.statement


class ConfigError(HeadwaterError):
    """What the user wrote cannot mean what it says."""


class DecodeError(HeadwaterError):
    """A peer, or a file, holds bytes that break their own format."""


class UnreadableBatch(DecodeError):
    """A batch of the log does not hold what its head says; the facts say where it is."""


class CorruptLog(HeadwaterError):
    """Stored bytes that were promised fail their checksum."""


class DirectoryInUse(HeadwaterError):
    """Another process owns the data directory."""


class LogUnavailable(HeadwaterError):
    """No leader accepts our reads or writes just now."""

    cure = Cure.TIME


class StorageFailed(HeadwaterError):
    """The disk refused a write or a sync; the partition stays offline until it is reopened."""

    cure = Cure.TIME


class LogRejected(HeadwaterError):
    """The log answered that this request can never succeed as it is."""


class PositionLost(HeadwaterError):
    """The history needed to go on is no longer kept, or the reader is ahead of it."""


class Fenced(HeadwaterError):
    """Somebody newer has taken over; this one ends quietly."""


class SourceUnavailable(HeadwaterError):
    """The system a source reads from does not answer just now."""

    cure = Cure.TIME


class SourceRejected(HeadwaterError):
    """The system a source reads from will not give what was asked for."""


class SinkUnavailable(HeadwaterError):
    """The system a sink writes to does not answer just now."""

    cure = Cure.TIME


class SinkRejected(HeadwaterError):
    """A target will not take a table's changes as they are; `table` among the facts names it."""


class SchemaRefused(SinkRejected):
    """A change of a table's shape that the pipeline's policy does not allow."""


class BeingReadAgain(HeadwaterError):
    """A table is read again at its source as a whole: until then its rows may differ from it."""


class RebuildNeeded(SchemaRefused):
    """The target can take a table's new form only as a table made anew from the log, which the
    policy allows."""


class TransformFailed(HeadwaterError):
    """A transform cannot be applied to a table's changes; `table` among the facts names it."""


class TableFailed(HeadwaterError):
    """An exception that nobody foresaw in the work on one table; `table` or `topic` names it."""


class RecordsRejected(HeadwaterError):
    """Single records that can never be applied, by their offsets in one partition."""

    def __init__(
        self, problem: str, *, topic: str, partition: int, reasons: Mapping[int, str]
    ) -> None:
        super().__init__(problem, topic=topic, partition=partition, records=len(reasons))
        self.topic, self.partition, self.reasons = topic, partition, reasons


class RowsRejected(DecodeError):
    """Single rows that do not fit their schema or their wire form, by their place among those
    given. Where very many are bad, only the first are named: what is left may hold more."""

    def __init__(self, problem: str, *, reasons: Mapping[int, str], **facts: object) -> None:
        super().__init__(problem, hint="", rows=len(reasons), **facts)
        self.reasons = reasons


class RegistryUnavailable(HeadwaterError):
    """The schema registry does not answer just now."""

    cure = Cure.TIME


class RegistryRejected(HeadwaterError):
    """The schema registry will not take a schema, or knows none of this number."""


class TransformRejected(RecordsRejected):
    """Single records to which a transform cannot be applied."""


class OffsetOutOfRange(HeadwaterError):
    """The offset asked for lies before the log's start or beyond its end."""


class BatchRejected(HeadwaterError):
    """A batch to be appended breaks a rule of the log."""


class CorruptBatch(BatchRejected):
    """The batch's checksum does not match its bytes, or its header contradicts itself."""


class BatchTooLarge(BatchRejected):
    """The batch is larger than the topic's max.message.bytes."""


class OutOfOrderSequence(BatchRejected):
    """The producer's batch is not the one that follows its last."""


class InvalidProducerEpoch(BatchRejected):
    """A newer producer of the same id has taken over."""


class InvalidTransactionState(BatchRejected):
    """The batch does not belong to a transaction that is open here."""
