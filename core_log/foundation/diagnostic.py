"""What an examination before the start found, with its cure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something about an outside system that would stop or hurt the pipeline."""

    problem: str
    cure: str
    """A command, an SQL statement or an edit."""
    is_fatal: bool = True
    left_out: tuple[str, ...] = ()
    """What the file names and, because of this, is not captured."""
