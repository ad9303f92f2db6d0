"""Finds the few bad rows of a batch by halving it, and names the classes of their values, never the
values."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import TypeVar

import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError, RowsRejected
from headwater.core_log.rows.schema_text import type_text

Found = TypeVar("Found")
NAMED_MAX = 1_000
"""Limit of named rows: a batch of bad rows only is not divided down to its last row."""

UNFIT = (ValueError, ArithmeticError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Exceptions of conversions for values that do not fit; `RowsRejected` is made from them."""
Failure = type[Exception] | tuple[type[Exception], ...]
DAY = re.compile(r"[+-]?\d{4,}-\d\d-\d\d( BC)?")
MOMENT = re.compile(r"[+-]?\d{4,}-\d\d-\d\d[T ]\d\d:\d\d.*", re.DOTALL)
CLOCK = re.compile(r"\d\d:\d\d(:\d\d(\.\d+)?)?")
WORDS = {"true": "true or false", "false": "true or false"}
CLASSES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (bytes, "bytes"),
    (datetime, "a moment"),
    (date, "a date"),
    (time, "a time of day"),
    (list, "a list"),
    (dict, "an object"),
)


def whole_or_rejected(
    row_count: int,
    convert: Callable[[int, int], Found],
    reason: Callable[[int], str],
    problem: str,
) -> Found:
    """Returns the result of `convert` for all rows; else raises `RowsRejected` with the reason for
    each bad one."""
    try:
        return convert(0, row_count)
    except UNFIT as error:
        bad = failing_rows(row_count, convert, rows_max=NAMED_MAX)
        if not bad:
            raise RowsRejected(
                "rows fit one by one but not together", reasons={0: problem}
            ) from error
        reasons = {row: reason(row) for row in bad}
        # No `from`: Arrow's message quotes the values.
        raise RowsRejected(problem, reasons=reasons) from None


def failing_rows(
    row_count: int,
    attempt: Callable[[int, int], object],
    failure: Failure = UNFIT,
    *,
    rows_max: int | None = None,
) -> dict[int, Exception]:
    """Returns the first rows, in order, on which `attempt` (start, end) fails alone, with its
    errors."""
    failed: dict[int, Exception] = {}
    waiting = [(0, row_count)]
    while waiting and (rows_max is None or len(failed) < rows_max):
        start, end = waiting.pop()
        if start == end:
            continue
        try:
            attempt(start, end)
        except failure as error:
            if end - start == 1:
                failed[start] = error
                continue
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return failed


def misfit(where: str, kind: pa.DataType, value: object) -> str:
    """Returns the message. `where` is the column's name in its format. Texts are values that were
    not parsed yet."""
    noun, class_name = (
        ("text", text_class(value, kind)) if isinstance(value, str) else ("value", "")
    )
    return (
        f"{where} is {_type_text(kind)} and the {noun} is {class_name or value_class(value, kind)}"
    )


def misfit_in(document: bytes, types: Mapping[str, pa.DataType]) -> str:
    """Returns the field of a JSON object that does not fit; empty if none does by itself."""
    try:
        found = json.loads(document, parse_float=Decimal)
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
    from pyarrow import json as arrow_json  # imported late: few programs read JSON by Arrow

    options = arrow_json.ParseOptions(
        explicit_schema=pa.schema([(name, kind)]), unexpected_field_behavior="ignore"
    )
    try:
        arrow_json.read_json(pa.BufferReader(document), parse_options=options)
    except pa.ArrowInvalid:
        return False
    return True


def value_class(value: object, kind: pa.DataType | None = None) -> str:
    """Returns the value's class. `kind` is the type that it did not fit, which may give more
    detail."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    for python, class_name in CLASSES:
        if isinstance(value, python):
            return class_name
    if isinstance(value, int | float | Decimal):
        return _number_class(Decimal(str(value)), kind)
    return "another value"


def scalar_class(scalar: pa.Scalar, wanted: pa.DataType | None = None) -> str:
    """Returns the class of a scalar, also of timestamps that Python's types do not support.
    `wanted` is the type that it did not fit, which may give more detail."""
    kind = scalar.type
    if not scalar.is_valid or not pa.types.is_temporal(kind):
        return value_class(scalar.as_py(), wanted)
    if pa.types.is_date(kind):
        return "a date"
    return "a moment" if pa.types.is_timestamp(kind) else "a time of day"


def text_class(text: str, kind: pa.DataType | None = None) -> str:
    if not text.strip():
        return "empty"
    try:
        return _number_class(Decimal(text.strip()), kind)
    except InvalidOperation:
        pass
    for pattern, class_name in ((DAY, "a date"), (MOMENT, "a moment"), (CLOCK, "a time of day")):
        if pattern.fullmatch(text):
            return (
                f"{class_name} out of range" if kind is not None and _is_time(kind) else class_name
            )
    if kind is not None and _is_number(kind):
        return "no number"
    if kind is not None and _is_time(kind):
        return "no date" if pa.types.is_date(kind) else "no time"
    if kind is not None and pa.types.is_binary(kind):
        return "no encoded bytes"
    return WORDS.get(text.lower(), "another one")


def _number_class(number: Decimal, kind: pa.DataType | None) -> str:
    if not number.is_finite():
        return "not a number" if number.is_nan() else "infinity"
    _, digits, exponent = number.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    places = -int(exponent) - zeros
    scale = None if kind is None else _scale(kind)
    if scale is None:
        return "a number with a fraction" if places > 0 else "a whole number"
    if places > scale:
        more = f"more than {scale} digits after the point" if scale else "a fraction"
        return f"a number with {more}"
    if number < 0 and kind is not None and pa.types.is_unsigned_integer(kind):
        return "a negative number"
    return "a number that is too large"


def _scale(kind: pa.DataType) -> int | None:
    """Returns the scale of types of exact numbers."""
    if pa.types.is_decimal(kind):
        return int(kind.scale)
    return 0 if pa.types.is_integer(kind) else None


def _is_number(kind: pa.DataType) -> bool:
    return _scale(kind) is not None or bool(pa.types.is_floating(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind))


def _type_text(kind: pa.DataType) -> str:
    try:
        return type_text(kind)
    except DecodeError:
        return str(kind)  # a type of a target, not of the log
