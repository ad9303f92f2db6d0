"""What was compared, and what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_log.errors import HeadwaterError
from pipelines.proving.comparing import Compared, Place
from pipelines.proving.folding import Shape
from pipelines.proving.moments import Moment
from pipelines.proving.subjects import Subject

SOURCE = "source"
UNREAD_NAMED = 20


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared with the log."""

    source: bool = True
    targets: bool = True
    only: str | None = None
    """Of the targets."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One table of one side, compared with the log."""

    subject: Subject
    side: str
    """`source`, or the sink's name."""
    shape: Shape
    moment: Moment
    compared: Compared
    named: Sequence[Mapping[str, Any]] = ()
    """The first of the differing keys, and what is wrong with them."""
    left_out: tuple[str, ...] = ()
    """Columns that this side does not give back as they were."""
    problem: str = ""
    """Why it could not be compared."""
    took_ms: int = 0
    mended: int = 0
    """Rows that were written anew before this comparison."""
    unread: Sequence[Place] = ()
    """Records of the log that nobody can decode, and that nothing has replaced: whether their rows
    are equal is not known."""

    @property
    def is_as_told(self) -> bool:
        """Whether all that the log tells is there."""
        return not self.problem and not self.compared.differing

    @property
    def is_equal(self) -> bool:
        return self.is_as_told and not self.unread

    def unread_lines(self) -> Iterator[str]:
        for (topic, partition), offset in self.unread[:UNREAD_NAMED]:
            yield f"{topic}-{partition} has a record at offset {offset:,} that cannot be decoded"
        if len(self.unread) > UNREAD_NAMED:
            yield f"and {len(self.unread) - UNREAD_NAMED:,} more records cannot be decoded"


def failed(subject: Subject, side: str, error: HeadwaterError) -> Verdict:
    """It could not be compared at all."""
    shape = Shape(subject.schema, subject.schema.names)
    return Verdict(subject, side, shape, Moment({}, ""), Compared(0), problem=str(error))
