"""The one error tree: an error says what is wrong, what to do, and who can cure it."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar


class Cure(Enum):
    """The party that can make the failed operation succeed."""

    TIME = "retry with backoff"
    OPERATOR = "stop this worker and wait for a person"


class HeadwaterError(Exception):
    """The root of every failure that we expect. Any other exception that escapes is a bug."""

    cure: ClassVar[Cure] = Cure.OPERATOR

    def __init__(self, problem: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.facts = problem, hint, facts

    @property
    def statement(self) -> str:
        """Returns the message and its facts, without the hint."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.facts.items())
        return f"{self.problem} ({facts})" if facts else self.problem

    def __str__(self) -> str:
        return f"{self.statement}\n  hint: {self.hint}" if self.hint else self.statement


class ConfigError(HeadwaterError):
    """A setting or an argument of the user is invalid."""


class DecodeError(HeadwaterError):
    """A peer or a file holds bytes that break their own format."""


NAMES_MAX = 5


def first_names(names: Sequence[object]) -> str:
    """Returns the first names and the number of the others."""
    first = ", ".join(map(str, names[:NAMES_MAX]))
    return first + (f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else "")


def check_format(version: int, known: int, written: str, **facts: object) -> None:
    """Refuses what a later version has stored; `written`: such as "a position was written"."""
    if version > known:
        raise DecodeError(f"{written} by a newer Headwater", hint="upgrade Headwater here", **facts)


class UnreadableBatch(DecodeError):
    """A batch of the log contradicts its own header; the facts say where it is."""


class CorruptLog(HeadwaterError):
    """Stored, acknowledged bytes fail their checksum."""


class DirectoryInUse(HeadwaterError):
    """Another process owns the data directory."""


class LogUnavailable(HeadwaterError):
    """No leader accepts our reads or writes at the moment."""

    cure = Cure.TIME


class NotController(LogUnavailable):
    """This broker does not lead the metadata quorum, or has lost the lead: a decision that was
    under way may yet be committed by the next controller."""


class OlderBrokers(HeadwaterError):
    """A decision needs records that brokers of an older version in this cluster do not read."""


class StorageFailed(HeadwaterError):
    """The disk refused a write or a sync; the partition stays offline until it is reopened."""

    cure = Cure.TIME


class DiskFull(HeadwaterError):
    """A disk has no room: of the log, of a target, of a source's server, or for temporary files.
    Unlike a lost connection it is not retried for ever."""

    cure = Cure.TIME


class LogRejected(HeadwaterError):
    """The log answered that this request can never succeed unchanged."""


class PositionLost(HeadwaterError):
    """The history that is needed to continue is no longer kept, or the reader is ahead of the log's
    end."""


class Fenced(HeadwaterError):
    """A newer instance has taken over; this one ends without a failure."""


class SourceUnavailable(HeadwaterError):
    """The source's system does not answer at the moment."""

    cure = Cure.TIME


class SourceRejected(HeadwaterError):
    """The source's system refuses a request."""


class SinkUnavailable(HeadwaterError):
    """The target's system does not answer at the moment."""

    cure = Cure.TIME


class SinkRejected(HeadwaterError):
    """A target refuses a table's changes; the fact `table` names it."""


class NothingApplied(SinkRejected):
    """A target has applied nothing of a table yet."""


class SchemaRefused(SinkRejected):
    """A schema change that the pipeline's policy does not allow."""


class BeingReadAgain(HeadwaterError):
    """The source reads a whole table again: until that ends, the log may differ from the table."""


class RebuildNeeded(SchemaRefused):
    """The target can only take a table's new schema if the table is rebuilt from the log; the
    policy allows it."""


class TransformFailed(HeadwaterError):
    """A transform cannot be applied to a table's changes; the fact `table` names it."""


class TableFailed(HeadwaterError):
    """An unexpected exception in the work on one table; the fact `table` or `topic` names it."""


class RecordsRejected(HeadwaterError):
    """Single records that can never be applied, by their offsets in one partition."""

    def __init__(
        self, problem: str, *, topic: str, partition: int, reasons: Mapping[int, str]
    ) -> None:
        first = min(reasons)
        super().__init__(
            problem,
            topic=topic,
            partition=partition,
            records=len(reasons),
            first_offset=first,
            first_reason=reasons[first],
        )
        self.topic, self.partition, self.reasons = topic, partition, reasons


class RowsRejected(DecodeError):
    """Single rows that do not fit their schema or their wire format, by their index among the given
    rows. If very many are bad, only the first are named: the rest may hold more."""

    def __init__(self, problem: str, *, reasons: Mapping[int, str], **facts: object) -> None:
        super().__init__(problem, hint="", rows=len(reasons), **facts)
        self.reasons = reasons


class RegistryUnavailable(HeadwaterError):
    """The schema registry does not answer at the moment."""

    cure = Cure.TIME


class RegistryRejected(HeadwaterError):
    """The schema registry refuses a schema, or does not know a schema id."""


class TransformRejected(RecordsRejected):
    """Single records to which a transform cannot be applied."""


class OffsetOutOfRange(HeadwaterError):
    """The requested offset is below the log's start or beyond its end."""


class BatchRejected(HeadwaterError):
    """A batch that is to be appended breaks a rule of the log."""


class CorruptBatch(BatchRejected):
    """The batch's checksum does not match its bytes, or its header contradicts itself."""


class BatchTooLarge(BatchRejected):
    """The batch is larger than the topic's max.message.bytes."""


class OutOfOrderSequence(BatchRejected):
    """The sequence number of the producer's batch does not follow its last one."""


class InvalidProducerEpoch(BatchRejected):
    """A newer producer with the same id has taken over."""


class InvalidTransactionState(BatchRejected):
    """The batch does not belong to an open transaction of this partition."""


@contextmanager
def failures_named(**facts: object) -> Iterator[None]:
    """Context manager: adds `facts` (with `table` or `topic`) to errors. Our own errors get the
    facts they lack; an unexpected exception is raised as `TableFailed` with itself as the cause."""
    try:
        yield
    except HeadwaterError as error:
        error.facts = {**facts, **error.facts}
        raise
    except Exception as bug:
        raise failure_of(bug, **facts) from bug


def failure_of(bug: Exception, **facts: object) -> HeadwaterError:
    """Returns the error for an exception that was already caught, as `failures_named` would raise
    it."""
    from headwater.core_log.foundation.disk_space import disk_full, lacks_room

    if isinstance(bug, HeadwaterError):
        return bug
    if lacks_room(bug):
        full = disk_full(bug)
        full.facts = {**facts, **full.facts}
        return full
    if isinstance(bug, OSError) and bug.strerror:
        return TableFailed(f"the system says: {bug.strerror.lower()}", hint="", **facts)
    return TableFailed(
        f"crashed by {place_of(bug)}", hint="its traceback is in the log of the process", **facts
    )


def place_of(bug: BaseException) -> str:
    """Returns the exception's class and place, without its message: that may quote data."""
    bug = next(each for each in leaves_of(bug) if not isinstance(each, HeadwaterError))
    frames = traceback.extract_tb(bug.__traceback__)
    where = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return f"{type(bug).__name__}{where}"


def leaves_of(failure: BaseException) -> Iterator[BaseException]:
    """Returns the exceptions of a group and its nested groups, or the exception itself."""
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from leaves_of(each)
    else:
        yield failure


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem of an outside system that would stop or hurt the pipeline."""

    problem: str
    hint: str
    """A command, an SQL statement or an edit."""
    is_fatal: bool = True
    left_out: tuple[str, ...] = ()
    """Tables or columns that the file names but that are not captured because of this problem."""
