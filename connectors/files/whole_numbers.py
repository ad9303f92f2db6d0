"""Finds whole numbers that a column of floats would round."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.files.line_parser import NotARow
from headwater.core_log.rows.schema_text import type_text

LONG = re.compile(rb"(?<![.\d])\d{8,}(?![.\deE])")
"""Text that lines of smaller numbers do not contain; others may contain it as well."""
EXACT_MAX = {pa.float32(): 1 << 24, pa.float64(): 1 << 53}
"""Up to this number every whole number is exact in the type."""
WIDE = pa.decimal128(38, 0)


def widened_types(block: bytes, rows: pa.Table) -> dict[str, pa.DataType]:
    """Returns the columns' types; decimals if all numbers are whole and a float would round one of
    them."""
    types = {field.name: field.type for field in rows.schema}
    large = {name for name, kind in types.items() if has_large(rows.column(name), kind)}
    if not large:
        return types
    objects = [load_line(line) for line in block.split(b"\n") if line.strip()]
    return types | {
        name: widen(types[name], (each.get(name) for each in objects)) for name in large
    }


def widen(kind: pa.DataType, values: Iterable[Any]) -> pa.DataType:
    there = [value for value in values if value is not None]
    if pa.types.is_list(kind):
        return pa.list_(widen(kind.value_type, (item for value in there for item in value)))
    if pa.types.is_struct(kind):
        return pa.struct([
            pa.field(each.name, widen(each.type, (value.get(each.name) for value in there)))
            for each in kind
        ])  # fmt: skip
    is_whole = all(isinstance(value, int) and abs(value) < 10**38 for value in there)
    is_float = pa.types.is_floating(kind)
    return WIDE if is_float and is_whole and any(loses(kind, value) for value in there) else kind


def check_objects(block: bytes, columns: Mapping[str, pa.ChunkedArray]) -> None:
    """Raises `NotARow` if a column has lost digits of a line."""
    types = {name: each.type for name, each in columns.items() if has_large(each, each.type)}
    if not types:
        return
    for line in block.split(b"\n"):
        if LONG.search(line):
            for path, kind in find_lost(load_line(line), types):
                raise NotARow(f"field {path} {digits_lost(kind)}")


def find_lost(
    values: Mapping[str, Any], types: Mapping[str, pa.DataType]
) -> Iterator[tuple[str, Any]]:
    for name, kind in types.items():
        yield from lost_of(values.get(name), kind, f"/{name}")


def lost_of(value: Any, kind: pa.DataType, path: str) -> Iterator[tuple[str, pa.DataType]]:
    if value is None:
        return
    if pa.types.is_list(kind):
        for item in value:
            yield from lost_of(item, kind.value_type, path)
    elif pa.types.is_struct(kind):
        for each in kind:
            yield from lost_of(value.get(each.name), each.type, f"{path}/{each.name}")
    elif pa.types.is_floating(kind) and isinstance(value, int) and loses(kind, value):
        yield path, kind


def has_large(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether a number of it may have been another whole number before."""
    if pa.types.is_list(kind):
        return has_large(pc.list_flatten(column), kind.value_type)
    if pa.types.is_struct(kind):
        return any(
            has_large(pc.struct_field(column, [at]), each.type) for at, each in enumerate(kind)
        )
    if kind not in EXACT_MAX:
        return False
    return bool(pc.any(pc.greater_equal(pc.abs(column), EXACT_MAX[kind])).as_py())


def loses(kind: pa.DataType, number: int | Decimal) -> bool:
    """Whether the shortest digits of the float, as events have them, are those of another
    number."""
    if -EXACT_MAX[kind] <= number <= EXACT_MAX[kind]:
        return False
    try:
        nearest = float(number)
    except OverflowError:
        return True
    if kind == pa.float32():
        with np.errstate(over="ignore"):
            return Decimal(str(np.float32(nearest))) != number
    return Decimal(repr(nearest)) != number


def digits_lost(kind: pa.DataType) -> str:
    return f"holds a whole number of which {type_text(kind)} loses digits"


def load_line(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotARow("the line is not JSON") from error
    if not isinstance(found, dict):
        raise NotARow("the line is not an object")
    return found
