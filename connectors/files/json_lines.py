"""Parses lines of JSON objects into columns."""

import re
from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from headwater.connectors.files.line_parser import NotARow
from headwater.connectors.files.schema_inference import InferredSchema, settled_type
from headwater.connectors.files.whole_numbers import check_objects, widened_types
from headwater.core_log.rows.rejects import misfit, misfit_in
from headwater.core_log.rows.schema_text import type_text

OBJECT = re.compile(rb"\s*\{")
BRACE, DEPTH_MAX = ord("{"), 60
LINE_ENDS = (ord("\n"), ord("\r"))
CHANGED = re.compile(r"Column\((/.*)\) changed from (\w+) to (\w+)", re.DOTALL)
NOT_CONVERTED = re.compile(r"Failed to convert JSON to (\w+(?:\(\d+, -?\d+\))?)")


class JsonLines:
    """The parser. Strings stay strings: a later one may not look like a date."""

    def __init__(self) -> None:
        self._always_null: set[str] = set()

    def parse(self, block: bytes | memoryview, inferred: InferredSchema) -> pa.Table:
        """Returns the rows; raises `NotARow` unless every line fits. New columns are added to
        `shape`."""
        block = bytes(block)
        if not OBJECT.match(block):
            raise NotARow("the line is not an object")
        rows = self._read_known(block, inferred) if inferred.types else None
        if rows is None:
            rows = self._read_new(block, inferred)
        columns = {name: as_column(rows, name, kind) for name, kind in inferred.types.items()}
        if not columns:
            raise NotARow("the object is empty")
        if all(column.null_count for column in columns.values()):
            check_beginnings(block)
        check_objects(block, columns)
        return pa.table(columns)

    def _read_known(self, block: bytes, inferred: InferredSchema) -> pa.Table | None:
        """Returns the rows; None if there are unknown fields, or lines that do not fit."""
        if inferred.is_closed:
            return read(block, inferred, unknown="ignore")
        try:
            return read(block, inferred, unknown="error", null_fields=self._always_null)
        except NotARow:
            return None

    def _read_new(self, block: bytes, inferred: InferredSchema) -> pa.Table:
        check_depth(block)  # it follows unknown fields to any depth
        rows = read(block, inferred, unknown="infer")
        unknown = rows.select([name for name in rows.column_names if name not in inferred.types])
        empty = {field.name for field in unknown.schema if pa.types.is_null(field.type)}
        fresh = {
            name: inferred_type(kind)
            for name, kind in widened_types(block, unknown.drop_columns([*empty])).items()
        }
        self._always_null = empty
        if not fresh:
            return rows
        inferred.add(fresh)
        return read(block, inferred, unknown="infer")


def check_beginnings(block: bytes) -> None:
    """Arrow's parser accepts a bare `null` as a row, and crashes the process if it comes first."""
    codes = np.frombuffer(block, np.uint8)
    starts = starts_of(codes)
    first = codes[starts]
    for start in starts[(first != BRACE) & ~np.isin(first, LINE_ENDS)]:
        end = block.find(b"\n", start)
        line = block[start : len(block) if end < 0 else end].strip()
        if line and not line.startswith(b"{"):
            raise NotARow("the line is not an object")


def check_depth(block: bytes) -> None:
    """Raises for deep nesting. Braces in strings count as well, which only rejects very unusual
    lines."""
    codes = np.frombuffer(block, np.uint8)
    starts = starts_of(codes)
    opened = (codes == BRACE) | (codes == ord("["))
    closed = (codes == ord("}")) | (codes == ord("]"))
    depth = np.cumsum(opened.astype(np.int32) - closed)
    deepest = np.maximum.reduceat(depth, starts) - np.where(starts, depth[starts - 1], 0)
    if deepest.max() > DEPTH_MAX:
        raise NotARow(f"the object is nested more than {DEPTH_MAX} deep")


def starts_of(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    starts = np.concatenate([[0], np.flatnonzero(codes == LINE_ENDS[0]) + 1])
    return starts[starts < len(codes)]


def read(
    block: bytes, inferred: InferredSchema, *, unknown: str, null_fields: Collection[str] = ()
) -> pa.Table:
    asked = {name: asked_type(kind) for name, kind in inferred.types.items()}
    asked |= {name: pa.null() for name in null_fields if name not in asked}
    try:
        rows = json.read_json(
            pa.BufferReader(block),
            read_options=json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=json.ParseOptions(
                explicit_schema=pa.schema(asked.items()), unexpected_field_behavior=unknown
            ),
        )
    except pa.ArrowInvalid as error:
        raise NotARow(problem_of(str(error)), lambda: misfit_in(block, asked)) from error
    rows.validate(full=True)  # the parser accepts any bytes as text
    return rows


def problem_of(reason: str) -> str:
    """Returns the error without the values that the parser quotes."""
    if found := CHANGED.search(reason):
        return f"field {found[1]} holds {found[3]} where the table has {found[2]}"
    if found := NOT_CONVERTED.search(reason):
        return f"a field holds no {found[1]}"
    return "the line is not JSON"


def as_column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    column = rows.column(name)
    if kind == pa.float32() and pc.any(pc.is_inf(column)).as_py():
        # The parser turns too large numbers into infinity.
        raise NotARow(f"field /{name} is float32 and the value is a number that is too large")
    if column.type == kind:
        return column
    if not is_textual(kind) and not fits(column.type, kind):
        raise NotARow(f"field /{name} holds fields that its column does not have")
    try:
        return pc.cast(column, kind)
    except pa.ArrowInvalid as error:
        problem = f"field /{name} holds no {type_text(kind)}"
        raise NotARow(
            problem, lambda: misfit(f"field /{name}", kind, rows.column(name)[0].as_py())
        ) from error


def fits(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether all unknown fields of an object are null."""
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        known = {field.name: field.type for field in kind}
        return all(
            fits(field.type, known[field.name])
            if field.name in known
            else pa.types.is_null(field.type)
            for field in found
        )
    if pa.types.is_list(found) and pa.types.is_list(kind):
        return fits(found.value_type, kind.value_type)
    return bool(found == kind)


def asked_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type for the parser: times are read as text."""
    return pa.string() if is_textual(kind) else kind


def is_textual(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def inferred_type(kind: pa.DataType) -> pa.DataType:
    return map_type(settled_type(kind), lambda leaf: pa.string() if is_textual(leaf) else leaf)


def map_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(map_type(kind.value_type, change))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, map_type(each.type, change)) for each in kind])
    return change(kind)
