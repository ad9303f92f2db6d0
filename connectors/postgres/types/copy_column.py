"""What COPY, in its binary format, is asked to send for a column, and how that is read."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

OUTPUT = "CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END"
"""SQL for a column's text, of whatever type it is, as the stream has it. A cast may differ: that of
`inet` does, and that of `bpchar`. This needs no right to call a type's output function."""
BYTES = f"pg_catalog.convert_to({OUTPUT}, 'SQL_ASCII')"
"""The same in a database that takes any bytes as text, of which it would refuse to send some."""


def as_type(name: str) -> str:
    """SQL for a column as one of the server's own types, which it already is: should it have become
    another since somebody looked, its bytes are not taken for what they are not."""
    return f"{{0}}::pg_catalog.{name}"


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """Values as the server holds them, where that costs both sides less than their text."""

    read: Callable[[pa.BinaryArray], pa.Array]
    """Raises one of `rejecting.UNFIT` for what the type of the column cannot hold."""
    text: Callable[[pa.BinaryArray], pa.StringArray]
    """What the server would have written, for the few values that are shown to somebody."""
