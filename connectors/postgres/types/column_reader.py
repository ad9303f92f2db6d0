"""What one type of PostgreSQL's becomes: a type of ours, and how its values are read."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.copy_column import BYTES, OUTPUT, CopyFormat
from headwater.core_log.model.table_schema import Column

ReadColumn = Callable[[pa.StringArray], pa.Array]
"""Null where the text is. Raises one of `rejecting.UNFIT` for what the type cannot hold."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's word for a value that the server did not send, as an update left it as it was."""

NAN = "NaN"


@dataclass(frozen=True, slots=True)
class TypeReader:
    """A type, before a column bears it."""

    type: pa.DataType
    read: ReadColumn
    semantic: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    unavailable: Any = None
    """What Debezium writes for a value that was not sent; None where it has no such word."""
    read_text: ReadColumn | None = None
    """Of decimals: how a column with a NaN in it is read, which is as text. Raises like `read`."""
    asked: str = OUTPUT
    """SQL for what COPY is to send."""
    form: CopyFormat | None = None
    """How COPY brings it, where that is not its text."""

    def column(self, name: str, *, is_nullable: bool) -> Column:
        return Column(name, self.type, is_nullable, self.semantic, self.parameters)


class ColumnPlan(NamedTuple):
    """How the values of one column, from the stream or from COPY, become a column of the log."""

    column: Column
    read: ReadColumn
    unavailable: pa.Scalar
    """What stands for a value that was not sent where `toast: placeholder` is chosen; null for
    types that Debezium has no word for."""
    with_nan: "ColumnPlan | None" = None
    """How it is read where a decimal is not a number, in modes that have a word for that."""
    asked: str = OUTPUT
    """SQL for what COPY is to send."""
    form: CopyFormat | None = None
    """How that is read, where it is not the text that the stream brings."""

    @property
    def asked_as_text(self) -> str:
        """SQL for its text, though the column be of another type by now."""
        return BYTES if self.asked == BYTES else OUTPUT

    def read_copied(self, sent: pa.Array) -> pa.Array:
        """What COPY sent for it. Raises like `read`."""
        return self.read(sent) if self.form is None else self.form.read(sent)

    def text_of(self, sent: pa.Array) -> pa.StringArray:
        """The same as the stream would have brought it."""
        return sent if self.form is None else self.form.text(sent)


def with_nan(
    plans: Sequence[ColumnPlan], sent: Sequence[pa.Array], key: Collection[str]
) -> tuple[ColumnPlan, ...]:
    """The plans for a piece of a table some of whose decimals may be none. A key stays as it is:
    rows are found by it."""
    return tuple(
        plan
        if plan.with_nan is None or plan.column.name in key or not _has_nan(text)
        else plan.with_nan
        for plan, text in zip(plans, sent, strict=True)
    )


def _has_nan(text: pa.StringArray) -> bool:
    return bool(pc.any(pc.match_substring(text, NAN), min_count=0).as_py())


def as_it_is(text: pa.StringArray) -> pa.Array:
    return text


def text_reading(semantic: str = "", parameters: Mapping[str, str] | None = None) -> TypeReader:
    return TypeReader(pa.string(), as_it_is, semantic, parameters or {}, UNAVAILABLE)
