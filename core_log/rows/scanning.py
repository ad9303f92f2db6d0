"""Reads Debezium's JSON events by the compiled scan, where they are plain enough for it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from core_log.rows.json_escapes import quote
from core_log.rows.rejecting import UNFIT
from core_log.rows.stretches import Bytes, Mask
from core_log.rows.strict_json import INTEGER_BITS
from core_log.speed import chosen_speed
from core_log.varint import Int64s, Words

ROWS_MIN = 500
"""Fewer are read before the compiled code is loaded."""
WORD_BYTES = 8
SLACK_BYTES = 64
"""At the least so far beyond a value the scan may look."""
INTEGER, BOOLEAN, STRING, FLOAT = range(4)
"""As `event_scan` has them, which is not imported before it is needed."""


Room: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.bool_], Mask]
"""What the scan fills: numbers; begin and end of every text by turns, and one number more; nulls;
and which columns have escapes."""


class Scanned(NamedTuple):
    """Columns of events; `images` are the rows before updates, of those events that have one."""

    rows: Sequence[pa.Array]
    letters: Bytes
    committed_us: Int64s
    images: Sequence[pa.Array]
    has_image: Mask


class Scanner:
    """For rows of one type, which has neither lists nor structs. Strict: whatever is not exactly
    what our encoder or Debezium's would write is left to those who read it slowly."""

    def __init__(self, kind: pa.StructType) -> None:
        self._types = [member.type for member in kind]
        self._kinds = np.array([_kind_of(each) for each in self._types], np.uint8)
        is_text = (self._kinds == STRING) | (self._kinds == FLOAT)
        self._places = np.where(is_text, np.cumsum(is_text), np.cumsum(~is_text)) - 1
        self._counts = int((~is_text).sum()), int(is_text.sum())
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
            [np.cumsum(counts) - counts, counts, lengths, self._kinds, self._places, limits],
            np.int64,
        ).T.copy()
        self._slack = max(lengths) + SLACK_BYTES

    def events(self, texts: pa.StringArray) -> Scanned | None:
        """None where something is out of the ordinary."""
        from core_log.rows import event_scan

        data, words, offsets = _readable(texts, self._slack)
        shape = (data, words, offsets, self._names, self._about)
        rows, images = self._room(len(texts)), self._room(0)
        letters, times = np.empty(len(texts), np.uint8), np.empty(len(texts), np.int64)
        has_image = np.zeros(len(texts), np.bool_)
        into = (letters, has_image, times)
        found = event_scan.scan_events(*shape, rows, images, into)
        if found == event_scan.HAS_IMAGES:
            images = self._room(len(texts))
            found = event_scan.scan_events(*shape, rows, images, into)
        if found != event_scan.SOUND:
            return None
        try:
            return Scanned(
                self._columns(rows, data, None),
                letters,
                times,
                self._columns(images, data, has_image) if has_image.any() else [],
                has_image,
            )
        except UNFIT:
            return None

    def objects(self, texts: pa.StringArray) -> list[pa.Array] | None:
        """The same for bare objects."""
        from core_log.rows import event_scan

        data, words, offsets = _readable(texts, self._slack)
        rows = self._room(len(texts))
        found = event_scan.scan_objects(data, words, offsets, self._names, self._about, rows)
        if found != event_scan.SOUND:
            return None
        try:
            return self._columns(rows, data, None)
        except UNFIT:
            return None

    def _room(self, count: int) -> Room:
        numbers, texts = self._counts
        return (
            np.zeros((numbers, count), np.int64),
            np.zeros((texts, 2 * count + 1), np.int32),
            np.zeros((len(self._kinds), count), np.bool_),
            np.zeros(len(self._kinds) if count else 0, np.bool_),
        )

    def _columns(self, room: Room, data: Bytes, chosen: Mask | None) -> list[pa.Array]:
        """Of all rows, or of the chosen ones."""
        rows = None if chosen is None else np.flatnonzero(chosen)
        return [self._column(room, number, data, rows) for number in range(len(self._kinds))]

    def _column(self, room: Room, number: int, data: Bytes, rows: Int64s | None) -> pa.Array:
        numbers, bounds, are_null, have_escapes = room
        kind, place, is_null = self._types[number], self._places[number], are_null[number]
        if rows is not None:
            is_null = is_null[rows]
        mask = is_null if is_null.any() else None
        if self._kinds[number] in (STRING, FLOAT):
            text = _text(bounds[place], data, rows, mask)
            if self._kinds[number] == STRING:
                return _unescaped(text) if have_escapes[number] else text
            return _finite(text.cast(kind), text)
        found = numbers[place] if rows is None else numbers[place][rows]
        return pa.array(found.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)


def scanner_for(kind: pa.StructType) -> Scanner | None:
    """None where the compiled scan cannot help."""
    is_plain = all(_kind_of(member.type) is not None for member in kind)
    is_told_apart = len({member.name for member in kind}) == kind.num_fields
    if not (kind.num_fields and is_plain and is_told_apart):
        return None
    return Scanner(kind) if chosen_speed() == "fast" else None


def _kind_of(kind: pa.DataType) -> int | None:
    if kind in INTEGER_BITS:
        return INTEGER
    if kind == pa.bool_():
        return BOOLEAN
    if kind == pa.string():
        return STRING
    return FLOAT if pa.types.is_floating(kind) else None


def _words_of(name: bytes) -> list[tuple[int, int]]:
    """Eight bytes at a time as one number, and which bits of it count."""
    parts = [name[place : place + WORD_BYTES] for place in range(0, len(name), WORD_BYTES)]
    return [(int.from_bytes(part, "little"), (1 << 8 * len(part)) - 1) for part in parts]


def _readable(texts: pa.StringArray, slack: int) -> tuple[Bytes, Words, Int64s]:
    """The bytes, the eight bytes from each on, and where values begin and end. The scan looks a
    little beyond the last."""
    _, offset_buffer, buffer = texts.buffers()
    first = texts.offset
    offsets = np.frombuffer(offset_buffer, np.int32)[first : first + len(texts) + 1]
    data = np.frombuffer(buffer, np.uint8)
    if len(data) < offsets[-1] + slack:
        data = np.concatenate((data[: offsets[-1]], np.zeros(slack, np.uint8)))
        data.flags.writeable = False
    words: Words = np.ndarray((len(data) - WORD_BYTES + 1,), "<u8", buffer=data, strides=(1,))
    return data, words, offsets.astype(np.int64)


def _text(
    bounds: npt.NDArray[np.int32], data: Bytes, rows: Int64s | None, mask: Mask | None
) -> pa.StringArray:
    """What lies between the bounds, out of one buffer."""
    if rows is not None:  # the others have no bounds
        np.maximum.accumulate(bounds, out=bounds)
    bounds[-1] = bounds[-2]
    count = len(bounds) - 1
    pieces = pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    places = np.arange(0, count, 2) if rows is None else 2 * rows
    found: pa.StringArray = pieces.take(pa.array(places, mask=mask))
    return found


def _unescaped(column: pa.StringArray) -> pa.StringArray:
    """Only where there is something to do; raises `ValueError` for an escape that is none."""
    is_escaped = pc.match_substring(column, "\\").fill_null(False)
    texts = pc.filter(column, is_escaped)
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), '","')[0].as_py()
    values: Any = orjson.loads(f'["{joined}"]')
    return pc.replace_with_mask(column, is_escaped, pa.array(values, pa.string()))


def _finite(column: pa.Array, text: pa.StringArray) -> pa.Array:
    """Digits that no float of this width can hold have become infinite."""
    is_large = pc.and_(pc.is_inf(column), pc.invert(pc.match_substring(text, "Inf")))
    if pc.any(is_large).as_py():
        raise ValueError("a number is too large")
    return column
