"""Reads Debezium's JSON events by the compiled scan, if their form is simple enough."""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.foundation.speed import CompiledSpeed, chosen_speed
from headwater.core_log.records.record_views import RecordField
from headwater.core_log.records.row_writer import quote
from headwater.core_log.records.varint import Words
from headwater.core_log.rows.json.strict_reader import INTEGER_BITS, column_of, parse_nested
from headwater.core_log.rows.rejects import UNFIT
from headwater.core_log.rows.schema_text import numpy_type

ROWS_MIN, WORTH_ROWS = 50, 20_000
"""Minimum of rows at a time, and in all, for which compiled code pays."""
WORD_BYTES = 8
SLACK_BYTES = 64
"""Bytes beyond a value that the scan may read at least."""
INTEGER, BOOLEAN, STRING, FLOAT, NESTED = range(5)
"""The same as in `json_kernels`, which is imported only when it is needed."""


Room: TypeAlias = tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.bool_], BoolArray
]
"""Arrays that the scan fills: numbers; begin and end of every text or nested value in turn; nulls;
and columns that need a second step: texts with escapes, floats that Arrow reads."""


class ScannedEvents(NamedTuple):
    """Columns of events; `images` are the rows before updates, of the events that have one."""

    rows: Sequence[pa.Array]
    codes: UInt8Array
    committed_us: Int64Array
    images: Sequence[pa.Array]
    has_image: BoolArray


class EventScanner:
    """A scanner for rows of one type. Strict: everything that differs from our encoder's or
    Debezium's own form is left to `strict_reader`."""

    def __init__(self, kind: pa.StructType) -> None:
        self._fields = list(kind)
        self._types = [member.type for member in kind]
        self._kinds = np.array([_kind_of(each) for each in self._types], np.uint8)
        is_text = self._kinds >= STRING
        self._text_indices = np.where(is_text, np.cumsum(is_text) - 1, 0)
        self._text_count = int(is_text.sum())
        names = [
            f"{',' if number else '{'}{quote(member.name)}:".encode()
            for number, member in enumerate(kind)
        ]
        words = [_words_of(name) for name in names]
        counts = [len(each) for each in words]
        lengths = [len(name) for name in names]
        limits = [(1 << INTEGER_BITS.get(each, 64) - 1) - 1 for each in self._types]
        self._names = np.array([word for each in words for word in each], np.uint64)
        self._about = np.array(
            [np.cumsum(counts) - counts, counts, lengths, self._kinds, self._text_indices, limits],
            np.int64,
        ).T.copy()
        self._slack = max(lengths) + SLACK_BYTES

    def events(self, values: RecordField) -> ScannedEvents | None:
        """Returns the events; None if one has an unusual form."""
        from headwater.core_log.compiled import byte_kernels, json_kernels

        count = len(values)
        data, words = _readable(values, self._slack)
        bytes_of = (data, words, values.starts, values.ends)
        if not byte_kernels.are_text(*bytes_of):
            return None
        shape = (*bytes_of, self._names, self._about)
        rows, images = self._room(count), self._room(0)
        codes, times = np.empty(count, np.uint8), np.empty(count, np.int64)
        has_image = np.zeros(count, np.bool_)
        into, hints = (codes, has_image, times), np.empty(2, np.int64)
        found = json_kernels.scan_events(*shape, rows, images, into, hints)
        if found == json_kernels.HAS_IMAGES:
            images = self._room(count)
            found = json_kernels.scan_events(*shape, rows, images, into, hints)
        if found != json_kernels.SOUND:
            return None
        try:
            return ScannedEvents(
                self._columns(rows, words, None),
                codes,
                times,
                self._columns(images, words, has_image) if has_image.any() else [],
                has_image,
            )
        except UNFIT:
            return None

    def objects(self, values: RecordField) -> list[pa.Array] | None:
        """Returns bare objects in the same way."""
        from headwater.core_log.compiled import byte_kernels, json_kernels

        data, words = _readable(values, self._slack)
        bytes_of = (data, words, values.starts, values.ends)
        if not byte_kernels.are_text(*bytes_of):
            return None
        rows = self._room(len(values))
        shape = (*bytes_of, self._names, self._about)
        if json_kernels.scan_objects(*shape, rows) != json_kernels.SOUND:
            return None
        try:
            return self._columns(rows, words, None)
        except UNFIT:
            return None

    def _room(self, count: int) -> Room:
        columns = len(self._kinds)
        return (
            np.zeros((columns, count), np.int64),
            np.zeros((self._text_count, 2 * count), np.int32),
            np.zeros((columns, count), np.bool_),
            np.array([kind == pa.float32() for kind in self._types] if count else [], np.bool_),
        )

    def _columns(self, room: Room, words: Words, chosen: BoolArray | None) -> list[pa.Array]:
        """Returns the columns of all rows, or of the chosen ones."""
        rows = None if chosen is None else np.flatnonzero(chosen)
        return [self._column(room, number, words, rows) for number in range(len(self._kinds))]

    def _column(self, room: Room, number: int, words: Words, rows: Int64Array | None) -> pa.Array:
        numbers, bounds, are_null, are_open = room
        kind, index, is_null = self._types[number], self._text_indices[number], are_null[number]
        if rows is not None:
            is_null = is_null[rows]
        mask = is_null if is_null.any() else None
        form = self._kinds[number]
        if form in (STRING, NESTED) or (form == FLOAT and are_open[number]):
            between = bounds[index]
            if rows is not None:
                between = np.ascontiguousarray(between.reshape(-1, 2)[rows]).reshape(-1)
            text = _texts(between, words, mask)
            if form == STRING:
                return _unescape(text) if are_open[number] else text
            if form == NESTED:
                return column_of(parse_nested(text), self._fields[number])
            return _finite(text.cast(kind), text)
        found = numbers[number] if rows is None else numbers[number][rows]
        if form == FLOAT:
            return pa.array(found.view(np.float64), kind, mask=mask)
        return pa.array(found.astype(numpy_type(kind), copy=False), kind, mask=mask)


def is_ready_for(rows: int) -> bool:
    """Returns whether the compiled scan is loaded and pays for that many rows."""
    if rows < ROWS_MIN:
        return False
    _scan().count(rows)
    return _scan().now


def wait_until_loaded() -> None:
    """Waits for the compiled scan, if there is a compiler."""
    _scan().wait_until_loaded()


@cache
def _scan() -> CompiledSpeed[bool]:
    """Starts the scan; returns whether it is loaded."""
    return CompiledSpeed(False, _load if chosen_speed() == "fast" else None, WORTH_ROWS)


def _load() -> bool:
    scanner = EventScanner(pa.struct([("a", pa.string())]))
    some = RecordField.of(pa.array(['{"a":"b"}']))
    scanner.objects(some)  # compiled at the first call
    scanner.events(some)
    return True


def scanner_for(kind: pa.StructType) -> EventScanner | None:
    """Returns a scanner; None without a compiler, or if the compiled scan does not support the
    type."""
    is_distinct = len({member.name for member in kind}) == kind.num_fields
    if not (kind.num_fields and is_distinct and chosen_speed() == "fast"):
        return None
    return EventScanner(kind)


def _kind_of(kind: pa.DataType) -> int:
    if kind in INTEGER_BITS:
        return INTEGER
    if kind == pa.bool_():
        return BOOLEAN
    if kind == pa.string():
        return STRING
    return FLOAT if pa.types.is_floating(kind) else NESTED


def _words_of(name: bytes) -> list[tuple[int, int]]:
    """Returns eight bytes at a time as one number, and the bits of it that count."""
    parts = [name[index : index + WORD_BYTES] for index in range(0, len(name), WORD_BYTES)]
    return [(int.from_bytes(part, "little"), (1 << 8 * len(part)) - 1) for part in parts]


def _readable(values: RecordField, slack: int) -> tuple[UInt8Array, Words]:
    """Returns the bytes, and the eight bytes at each one. The scan reads a little beyond the
    last."""
    data = values.data
    end = int(values.ends.max(initial=0))
    if len(data) < end + slack:
        data = np.concatenate((data[:end], np.zeros(slack, np.uint8)))
    words: Words = np.ndarray((len(data) - WORD_BYTES + 1,), "<u8", buffer=data, strides=(1,))
    # The code is compiled for one layout of arrays.
    data, words = data.view(), words.view()
    data.flags.writeable = words.flags.writeable = False
    return data, words


def _texts(bounds: npt.NDArray[np.int32], words: Words, mask: BoolArray | None) -> pa.StringArray:
    """Returns the text between the bounds."""
    from headwater.core_log.compiled import byte_kernels

    offsets = np.zeros(len(bounds) // 2 + 1, np.int32)
    np.cumsum(bounds[1::2] - bounds[::2], out=offsets[1:])
    texts = np.empty(int(offsets[-1]) + WORD_BYTES, np.uint8)
    room: Words = np.ndarray((len(texts) - WORD_BYTES + 1,), "<u8", buffer=texts, strides=(1,))
    byte_kernels.gather_texts(words, bounds, offsets, room)
    validity = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(texts)]
    found: pa.StringArray = pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
    return found


def _unescape(column: pa.StringArray) -> pa.StringArray:
    """Replaces escapes if there are any; raises `ValueError` for an invalid escape."""
    is_escaped = pc.match_substring(column, "\\").fill_null(False)
    texts = pc.filter(column, is_escaped)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), '","')[0].as_py()
    values: Any = orjson.loads(f'["{joined}"]')
    return pc.replace_with_mask(column, is_escaped, pa.array(values, pa.string()))


def _finite(column: pa.Array, text: pa.StringArray) -> pa.Array:
    """Raises if a number became infinite because it is too large for a float of this width."""
    is_large = pc.and_(pc.is_inf(column), pc.invert(pc.match_substring(text, "Inf")))
    if pc.any(is_large).as_py():
        raise ValueError("a number is too large")
    return column
