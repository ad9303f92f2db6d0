"""Columns that are added, renamed or given another type after the log."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.column_history import missing_text, missing_value
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.rejects import failing_rows
from headwater.core_log.rows.schema_text import parse_type, type_text
from headwater.pipelines.transforms.expressions import (
    MS_MAX,
    ExpressionFailed,
    Expressions,
    PreparedQuery,
)
from headwater.pipelines.transforms.rows import (
    at_table,
    is_operation,
    put_columns,
    rejection,
    with_columns,
)


class Add:
    """New columns, each computed from the row as it was before this step."""

    def __init__(
        self,
        texts: Mapping[str, str],
        schema: TableSchema,
        expressions: Expressions,
        *,
        ms_max: int = MS_MAX,
    ) -> None:
        if taken := [name for name in texts if name in schema.key]:
            raise ConfigError(
                "a key column cannot be replaced, because the key must stay unique",
                hint="give the new column another name",
                table=str(schema.table),
                column=taken[0],
            )
        self._names = list(texts)
        what = f"add {', '.join(texts)}"
        self._values = expressions.prepare(texts, schema, what=what, ms_max=ms_max)
        added = [Column(name, kind) for name, kind in self._values.types.items()]
        self.schema = put_columns(schema, added)

    def apply(self, changes: TableChanges) -> TableChanges:
        values = answers_of(self._values, changes, is_operation(changes, Operation.DELETE))
        return with_columns(changes, self.schema, dict(zip(self._names, values, strict=True)))


class Rename:
    """Columns under other names, the key's as well."""

    def __init__(self, names: Mapping[str, str], schema: TableSchema) -> None:
        new = [names.get(name, name) for name in schema.names]
        if len(set(new)) < len(new):
            raise ConfigError(
                "two columns have the same name",
                table=str(schema.table),
                column=next(name for name in new if new.count(name) > 1),
            )
        self._names = names
        self.schema = replace(
            schema,
            columns=tuple(
                replace(column, name=names.get(column.name, column.name))
                for column in schema.columns
            ),
            key=tuple(names.get(name, name) for name in schema.key),
        )

    def apply(self, changes: TableChanges) -> TableChanges:
        rows = pa.RecordBatch.from_arrays(changes.rows.columns, schema=self.schema.arrow)
        before = changes.before
        if before is not None:
            fields = [
                field.with_name(self._names.get(field.name, field.name)) for field in before.type
            ]
            arrays = [before.field(place) for place in range(len(fields))]
            before = pa.StructArray.from_arrays(arrays, fields=fields, mask=before.is_null())
        return replace(changes, schema=self.schema, rows=rows, before=before)


class Cast:
    """Columns of another type: a value that does not fit the new one is an error, never a null,
    and nothing is rounded or cut."""

    def __init__(self, types: Mapping[str, str], schema: TableSchema) -> None:
        try:
            self._types = {name: parsed_type(text) for name, text in types.items()}
        except ConfigError as error:
            raise at_table(error, schema) from None
        for name in set(types) & set(schema.key):
            if not _keeps_apart(schema.column(name).type, self._types[name]):
                raise ConfigError(
                    "the cast could make two keys equal",
                    hint="cast a column of the key to string or to a wider integer only",
                    table=str(schema.table),
                    column=name,
                    type=types[name],
                )
        self.schema = put_columns(
            schema,
            [
                replace(
                    schema.column(name),
                    type=kind,
                    semantic="",
                    parameters={},
                    missing=_cast_missing(schema.column(name), kind),
                )
                for name, kind in self._types.items()
            ],
        )

    def apply(self, changes: TableChanges) -> TableChanges:
        cast = {name: self._cast(changes, name, kind) for name, kind in self._types.items()}
        return with_columns(changes, self.schema, cast)

    def _cast(self, changes: TableChanges, name: str, kind: pa.DataType) -> pa.Array:
        values = changes.rows.column(name)
        try:
            return _strictly(values, kind)
        except pa.ArrowException:
            failed = failing_rows(
                len(values),
                lambda start, end: _strictly(values.slice(start, end - start), kind),
                pa.ArrowException,
            )
        if name not in changes.schema.key:
            # The former values are for information only; a delete must get through.
            goes = is_operation(changes, Operation.DELETE)
            harmless = {row for row in failed if goes[row].as_py()}
            if harmless == failed.keys():
                mask = pa.array([row in harmless for row in range(len(values))])
                return _strictly(pc.if_else(mask, pa.scalar(None, values.type), values), kind)
            failed = {row: error for row, error in failed.items() if row not in harmless}
        reason = f"the value of {name} is no {type_text(kind)}"
        raise rejection("a value does not fit its new type", changes, dict.fromkeys(failed, reason))


def _cast_missing(column: Column, kind: pa.DataType) -> str | None:
    """None as well of a value that does not fit: its rows are dead letters."""
    if column.missing is None:
        return None
    try:
        value = _strictly(pa.array([missing_value(column)], column.type), kind)[0]
    except pa.ArrowException:
        return None
    return missing_text(value)


def parsed_type(text: str) -> pa.DataType:
    """Raises ConfigError where no type is called so."""
    try:
        return parse_type(text)
    except DecodeError:
        raise ConfigError(
            "the type does not exist",
            hint="write string, int64, float64, bool, date, decimal(10,2), timestamp(us), ...",
            type=text,
        ) from None


def _strictly(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Raises ArrowException where a value does not fit, also where Arrow would round it. A float
    is the number of its shortest text."""
    if pa.types.is_timestamp(values.type) and pa.types.is_date(kind):
        return pc.cast(pc.floor_temporal(values, unit="day"), kind)
    if pa.types.is_nested(values.type):
        # A cast of a slice would cast the items of other rows too.
        values = values.take(pa.array(np.arange(len(values))))
    cast = pc.cast(pc.cast(values, _type_between(values.type, kind)), kind)
    _check_kept(values, cast)
    return cast


def _type_between(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Text between decimals and floats: Arrow's own casts do not give the nearest number."""
    if pa.types.is_list(old) and pa.types.is_list(new):
        return pa.list_(_type_between(old.value_type, new.value_type))
    from_float = pa.types.is_floating(old) and pa.types.is_decimal(new)
    from_decimal = pa.types.is_decimal(old) and pa.types.is_floating(new)
    return pa.string() if from_float or from_decimal else old


def _check_kept(values: pa.Array, cast: pa.Array) -> None:
    old, new = values.type, cast.type
    if pa.types.is_list(old) and pa.types.is_list(new):
        _check_kept(pc.list_flatten(values), pc.list_flatten(cast))
        return
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        for pair in zip(values.flatten(), cast.flatten(), strict=True):
            _check_kept(*pair)
        return
    if pa.types.is_floating(old) and pa.types.is_floating(new) and new.bit_width < old.bit_width:
        values, cast = pc.cast(values, pa.string()), pc.cast(cast, pa.string())
    elif pa.types.is_floating(old) and pa.types.is_decimal(new):
        values = pc.cast(pc.cast(values, pa.string()), new)
    elif pa.types.is_decimal(old) and pa.types.is_floating(new):
        cast = pc.cast(pc.cast(cast, pa.string()), old)
    elif pa.types.is_string(old) and pa.types.is_floating(new):
        # Numbers beyond a float become infinite, which only a text of letters is.
        beyond = pc.and_(pc.is_inf(cast), pc.match_substring_regex(values, "[0-9]"))
        values, cast = beyond, pa.repeat(False, len(beyond))
    elif pa.types.is_boolean(new) and (pa.types.is_integer(old) or pa.types.is_floating(old)):
        cast = pc.cast(cast, old)
    else:
        return
    if pc.any(pc.not_equal(values, cast)).as_py():
        raise pa.ArrowInvalid("a value would be rounded")


def _keeps_apart(old: pa.DataType, new: pa.DataType) -> bool:
    if old == new:
        return True
    if pa.types.is_integer(old) and pa.types.is_integer(new):
        return bool(
            new.bit_width > old.bit_width
            if pa.types.is_unsigned_integer(old)
            else new.bit_width > old.bit_width and pa.types.is_signed_integer(new)
        )
    return pa.types.is_string(new) and not pa.types.is_floating(old) and not pa.types.is_nested(old)


def answers_of(
    expressions: PreparedQuery, changes: TableChanges, goes: pa.BooleanArray
) -> list[pa.Array]:
    """Returns the answers. Only the key of a delete is sure to be there: what cannot be computed is
    null."""
    try:
        return expressions.evaluate(changes.rows)
    except ExpressionFailed as unanswered:
        reasons = unanswered.reasons
    blamed = {row: reason for row, reason in reasons.items() if not goes[row].as_py()}
    if blamed:
        raise rejection("an expression cannot be computed", changes, blamed)
    return expressions.evaluate_or_null(changes.rows)
