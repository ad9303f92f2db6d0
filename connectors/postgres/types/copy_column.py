"""SQL expressions of a column for COPY in its binary format, and the reading of the result."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

OUTPUT = "CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END"
"""SQL expression of a column's text of any type, as the stream has it. A cast may differ: those of
`inet` and `bpchar` do. It needs no right to call a type's output function."""
BYTES = f"pg_catalog.convert_to({OUTPUT}, 'SQL_ASCII')"
"""The same for a database that accepts any bytes as text, some of which it would refuse to send."""


def as_type(name: str) -> str:
    """Returns the SQL of a cast to the type that the column has: if the type has changed since, its
    bytes are not misread."""
    return f"{{0}}::pg_catalog.{name}"


@dataclass(frozen=True, slots=True)
class CopyFormat:
    """Values in the server's binary form, if that costs both sides less than text."""

    read: Callable[[pa.BinaryArray], pa.Array]
    """Raises one of `rejecting.UNFIT` for values that the column's type cannot hold."""
    text: Callable[[pa.BinaryArray], pa.StringArray]
    """Returns the server's text form, for the few values that are displayed."""
