"""Finds the field of a JSON object that does not fit its column, after the parser refused the
object."""

import json as json_of_python
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
from pyarrow import json

from headwater.core_log.rows.column_types import type_text
from headwater.core_log.rows.value_classes import misfit


def misfit_in(document: bytes, types: Mapping[str, pa.DataType]) -> str:
    """Returns the field of one object that does not fit; empty if none is the cause by itself."""
    try:
        found = json_of_python.loads(document, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    for name, kind in types.items():
        value = found.get(name)
        if isinstance(value, dict | list) or _is_read(document, name, kind):
            continue
        if isinstance(value, str) and not pa.types.is_decimal(kind):
            return f"field /{name} is {type_text(kind)} and the value is a text"
        return misfit(f"field /{name}", kind, value)
    return ""


def _is_read(document: bytes, name: str, kind: pa.DataType) -> bool:
    options = json.ParseOptions(
        explicit_schema=pa.schema([(name, kind)]), unexpected_field_behavior="ignore"
    )
    try:
        json.read_json(pa.BufferReader(document), parse_options=options)
    except pa.ArrowInvalid:
        return False
    return True
