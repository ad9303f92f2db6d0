"""What one type of PostgreSQL's becomes: a type of ours, and how its text is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from core_log.table_schema import Column

Read = Callable[[pa.StringArray], pa.Array]
"""Null where the text is. Raises one of `rejecting.UNFIT` for what the type cannot hold."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's word for a value that the server did not send, as an update left it as it was."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A type, before a column bears it."""

    type: pa.DataType
    read: Read
    semantic: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    unavailable: Any = None
    """What Debezium writes for a value that was not sent; None where it has no such word."""

    def column(self, name: str, *, is_nullable: bool) -> Column:
        return Column(name, self.type, is_nullable, self.semantic, self.parameters)


class ColumnPlan(NamedTuple):
    """How the text of one column, from the stream or from COPY, becomes a column of the log."""

    column: Column
    read: Read
    unavailable: pa.Scalar
    """What stands for a value that was not sent where `toast: placeholder` is chosen; null for
    types that Debezium has no word for."""


def as_it_is(text: pa.StringArray) -> pa.Array:
    return text


def text_reading(semantic: str = "", parameters: Mapping[str, str] | None = None) -> Reading:
    return Reading(pa.string(), as_it_is, semantic, parameters or {}, UNAVAILABLE)
