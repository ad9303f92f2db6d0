"""Parses arrays from their text: `{1,NULL,"a b"}`, `[0:1]={1,2}`, `{{1,2},{3,4}}`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.connectors.postgres.types.column_reader import UNAVAILABLE, ReadColumn, TypeReader
from headwater.core_log.foundation.array_types import BoolArray, UInt8Array
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets, slices_of

AS_NUMBERS = {pa.int32(), pa.int64(), pa.date32()}
"""Item types of arrays for which Debezium writes the bytes of its placeholder, each as a number."""
QUOTE, ESCAPE, OPENING = b'"\\{'


def array_reading(item: TypeReader, *, delimiter: str, dimensions: int) -> TypeReader:
    """Returns the reader. Lower bounds are ignored. `dimensions` is the declared number: values
    with others do not fit."""
    read, kind = item.read, item.type
    for _ in range(max(dimensions, 1)):
        kind = pa.list_(kind)
    depth = max(dimensions, 1)
    unavailable = None if item.unavailable is None else [item.unavailable]
    if item.type in AS_NUMBERS:
        unavailable = list(UNAVAILABLE.encode())
    read_text = item.read_text
    return TypeReader(
        kind,
        lambda text: _lists(text, read, delimiter=delimiter, depth=depth),
        item.semantic,
        item.parameters,
        unavailable if depth == 1 else None,
        read_text and partial(_lists, read=read_text, delimiter=delimiter, depth=depth),
    )


def _lists(text: pa.StringArray, read: ReadColumn, *, delimiter: str, depth: int) -> pa.Array:
    if depth == 1 and _is_flat(text):
        return _flat_lists(text, read, delimiter)
    found = [
        None if each is None else _parse_items(each, delimiter, depth) for each in text.to_pylist()
    ]
    return _read_items(pa.array(found, _texts_of(depth)), read)


def _texts_of(depth: int) -> pa.DataType:
    kind = pa.string()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def _read_items(lists: pa.Array, read: ReadColumn) -> pa.Array:
    if not pa.types.is_list(lists.type):
        return read(lists)
    return _lists_of(_read_items(lists.flatten(), read), pc.list_value_length(lists), lists)


def _lists_of(items: pa.Array, counts: pa.Array, like: pa.Array) -> pa.Array:
    ends = np.cumsum(counts.fill_null(0).to_numpy())
    offsets = pa.array(np.concatenate(([0], ends)).astype(np.int32))
    mask = like.is_null() if like.null_count else None
    return pa.ListArray.from_arrays(offsets, items, mask=mask)


def _is_flat(text: pa.StringArray) -> bool:
    """Whether it has no escapes, no declared bounds and no second dimension."""
    data, offsets = bytes_and_offsets(text)
    if (data == ESCAPE).any():
        return False
    opened = int(np.count_nonzero((data == OPENING) & ~_quoted_places(data)))
    starts = offsets[:-1][np.diff(offsets) > 0]
    return opened == len(starts) and bool((data[starts] == OPENING).all())


def _quoted_places(data: UInt8Array) -> BoolArray:
    """Returns the places between quotes, including opening ones: every array closes its quotes."""
    is_quote = data == QUOTE
    if not is_quote.any():
        return np.zeros(len(data), np.bool_)
    inside: BoolArray = (np.cumsum(is_quote) & 1).astype(np.bool_)
    return inside


def _flat_lists(text: pa.StringArray, read: ReadColumn, delimiter: str) -> pa.Array:
    """Parses lists: items begin after a brace or a delimiter outside of quotes, and end before
    one."""
    data, offsets = bytes_and_offsets(text)
    if not len(data):
        return _lists_of(read(pa.array([], pa.string())), pa.nulls(len(text), pa.int32()), text)
    marks = np.flatnonzero((data == ord(delimiter)) & ~_quoted_places(data))
    lengths = np.diff(offsets)
    firsts, lasts = offsets[:-1][lengths > 0], offsets[1:][lengths > 0] - 1
    starts = np.sort(np.concatenate((firsts, marks))) + 1
    ends = np.sort(np.concatenate((marks, lasts)))
    rows = np.searchsorted(offsets, starts, side="right") - 1
    is_item = ends > starts  # only an empty array has an empty item
    starts, ends, rows = starts[is_item], ends[is_item], rows[is_item]
    is_bare = data[starts] != QUOTE
    starts, ends = starts + ~is_bare, ends - ~is_bare
    items = slices_of(data, starts, ends)
    if is_bare.any():
        is_null = pc.and_(pa.array(is_bare), pc.equal(items, "NULL"))
        items = pc.if_else(is_null, pa.scalar(None, pa.string()), items)
    counts = pa.array(np.bincount(rows, minlength=len(text)).astype(np.int32))
    return _lists_of(read(items), counts, text)


def _parse_items(text: str, delimiter: str, depth: int) -> Sequence[Any]:
    if text.startswith("["):
        text = text[text.index("=") + 1 :]
    found, end = _parse(text, 0, delimiter)
    if end != len(text):
        raise ValueError("the text is not an array")
    if found and _depth(found) != depth:
        raise ValueError("the array has other dimensions than its column declares")
    return found


def _depth(value: Any) -> int:
    return 1 + _depth(value[0]) if isinstance(value, list) and value else int(value == [])


def _parse(text: str, start: int, delimiter: str) -> tuple[list[Any], int]:
    items: list[Any] = []
    place = start + 1
    item: Any
    while text[place] != "}":
        if text[place] == "{":
            item, place = _parse(text, place, delimiter)
        elif text[place] == '"':
            item, place = _quote(text, place + 1)
        else:
            item, place = _bare(text, place, delimiter)
        items.append(item)
        if text[place] == delimiter:
            place += 1
    return items, place + 1


def _quote(text: str, place: int) -> tuple[str, int]:
    found: list[str] = []
    while True:
        quote, escape = text.index('"', place), text.find("\\", place)
        if escape < 0 or quote < escape:
            return "".join([*found, text[place:quote]]), quote + 1
        found += [text[place:escape], text[escape + 1]]
        place = escape + 2


def _bare(text: str, place: int, delimiter: str) -> tuple[str | None, int]:
    ends = [end for end in (text.find(delimiter, place), text.find("}", place)) if end >= 0]
    item = text[place : min(ends)]
    return (None if item == "NULL" else item), min(ends)
