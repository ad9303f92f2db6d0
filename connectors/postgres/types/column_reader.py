"""The type of a column in the log, and how PostgreSQL's values are read."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.column_history import missing_text
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.rejects import UNFIT

ReadColumn = Callable[[pa.StringArray], pa.Array]
"""Null where the text is null. Raises one of `rejects.UNFIT` for values that the type cannot
hold."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for an unchanged value that the server did not send."""

NAN = "NaN"
ONE_ITEM = re.compile(r'\{(?:"((?:[^"\\]|\\.)*)"|([^{}"\\]+))\}', re.DOTALL)
"""An array with one item, as the server writes it."""

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
    """Raises one of `rejects.UNFIT` for values that the column's type cannot hold."""
    text: Callable[[pa.BinaryArray], pa.StringArray]
    """Returns the server's text form, for the few values that are displayed."""


@dataclass(frozen=True, slots=True)
class TypeReader:
    """The reader of a type, independent of a column."""

    type: pa.DataType
    read: ReadColumn
    semantic: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    unavailable: Any = None
    """Debezium's placeholder for an unavailable value; None if it has none for the type."""
    read_text: ReadColumn | None = None
    """For decimals: reads a column that contains a NaN, as text. Raises like `read`."""
    asked: str = OUTPUT
    """SQL expression for COPY."""
    form: CopyFormat | None = None
    """Format of COPY's values, if it is not text."""

    def column(self, name: str, *, is_nullable: bool) -> Column:
        return Column(name, self.type, is_nullable, self.semantic, self.parameters)


class ColumnPlan(NamedTuple):
    """How the values of one column, from the stream or from COPY, become a column of the log."""

    column: Column
    read: ReadColumn
    unavailable: pa.Scalar
    """Value of an unavailable value with `toast: placeholder`; null for types without a
    placeholder."""
    with_nan: "ColumnPlan | None" = None
    """How to read it if a decimal is NaN, in modes that have a word for NaN."""
    asked: str = OUTPUT
    """SQL expression for COPY."""
    form: CopyFormat | None = None
    """How COPY's values are read, if they are not the stream's text."""

    @property
    def asked_as_text(self) -> str:
        """Returns the SQL expression of its text, even if the column has another type now."""
        return BYTES if self.asked == BYTES else OUTPUT

    def read_copied(self, sent: pa.Array) -> pa.Array:
        """Reads COPY's values. Raises like `read`."""
        return self.read(sent) if self.form is None else self.form.read(sent)

    def text_of(self, sent: pa.Array) -> pa.StringArray:
        """Returns COPY's values as the text that the stream would have."""
        return sent if self.form is None else self.form.text(sent)


def with_nan(
    plans: Sequence[ColumnPlan], sent: Sequence[pa.Array], key: Collection[str]
) -> tuple[ColumnPlan, ...]:
    """Returns the plans for rows with a NaN among their decimals. A key stays the same: rows are
    found by it."""
    return tuple(
        plan
        if plan.with_nan is None or plan.column.name in key or not _has_nan(text)
        else plan.with_nan
        for plan, text in zip(plans, sent, strict=True)
    )


def _has_nan(text: pa.StringArray) -> bool:
    return bool(pc.any(pc.match_substring(text, NAN), min_count=0).as_py())


def with_missing(plan: ColumnPlan, array: str | None) -> ColumnPlan:
    """Returns the plan with the value of rows that are older than the column, from an array of one
    item; unchanged if the log cannot store the value with the column."""
    found = None if array is None else ONE_ITEM.fullmatch(array)
    if found is None or plan.asked == BYTES:
        return plan
    quoted, plain = found.groups()
    text = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if plain is None else plain
    try:
        [value] = plan.read(pa.array([text], pa.string()))
    except UNFIT:
        return plan
    column = replace(plan.column, missing=missing_text(value))
    if plan.with_nan is None:
        return plan._replace(column=column)
    as_text = replace(plan.with_nan.column, missing=column.missing)
    return plan._replace(column=column, with_nan=plan.with_nan._replace(column=as_text))


def as_it_is(text: pa.StringArray) -> pa.Array:
    return text


def text_reading(semantic: str = "", parameters: Mapping[str, str] | None = None) -> TypeReader:
    return TypeReader(pa.string(), as_it_is, semantic, parameters or {}, UNAVAILABLE)
