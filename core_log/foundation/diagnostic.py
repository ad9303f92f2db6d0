"""A problem that a check before the start found, with its hint."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem of an outside system that would stop or hurt the pipeline."""

    problem: str
    hint: str
    """A command, an SQL statement or an edit."""
    is_fatal: bool = True
    left_out: tuple[str, ...] = ()
    """Tables or columns that the file names but that are not captured because of this problem."""
