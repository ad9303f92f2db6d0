"""Compiled scan of Debezium's JSON events: reads every byte that counts once."""

# Results are single arrays, not tuples of them: unpacking a tuple counts references, which for
# every value of every row costs more than all the rest.

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.core_log.compiled.object_cache import CompiledFunction
from headwater.core_log.foundation.array_types import BoolArray, Int64Array, UInt8Array
from headwater.core_log.records.varint import Words

Matrix = npt.NDArray[Any]
Room: TypeAlias = tuple[Matrix, Matrix, Matrix, BoolArray]
"""Results by column and row: numbers (floats as their bits), bounds of all else, nulls. The last
one marks columns that need a second step: texts with escapes, floats that one division does not
give exactly."""
ScannedFields: TypeAlias = tuple[UInt8Array, BoolArray, Int64Array]
"""The operations' codes, whether there is a row before an update, and commit times."""

INTEGER, BOOLEAN, STRING, FLOAT, NESTED = range(5)
NAME_FIRST, NAME_WORDS, NAME_BYTES, KIND, PLACE, LIMIT = range(6)
"""The description of a column: start, word count and byte count of its name; its kind; its index
among columns of that kind; the largest number it takes."""
SOUND, ODD, HAS_IMAGES = range(3)
"""Results of a scan: everything as expected; something else; rows before updates, but no room for
them."""
NOWHERE, UNKEPT = -1, -2

OPENING = np.frombuffer(b'{"before":', np.uint8)
AFTER = np.frombuffer(b',"after":', np.uint8)
SOURCE = np.frombuffer(b',"source":{', np.uint8)
TIME = np.frombuffer(b',"ts_us":', np.uint8)
OPERATION = np.frombuffer(b',"op":"', np.uint8)
TRUE, FALSE = np.frombuffer(b"true", np.uint8), np.frombuffer(b"false", np.uint8)
NAN, INFINITY = np.frombuffer(b'NaN"', np.uint8), np.frombuffer(b'Infinity"', np.uint8)
QUOTE, BACKSLASH, COMMA, MINUS, PLUS, POINT, CLOSING = b'"\\,-+.}'
LIST, LIST_END, OBJECT = b"[]{"
ZERO, SPACE, SMALL_D, SMALL_E, LARGE_E = b"0 deE"
DIGITS_MAX, SMALLEST = 19, np.int64(-(2**63))
WHOLE_MAX, POWER_MAX, EXPONENT_DIGITS_MAX = np.int64(2**53), 22, 4
POWERS = np.array([10.0**power for power in range(POWER_MAX + 1)])
"""Powers of ten that a double holds exactly."""

WORD_BYTES = 8
NULL, NULL_BYTES = np.uint64(int.from_bytes(b"null", "little")), 4
HALF, BYTE = np.uint64(0xFFFFFFFF), np.uint64(8)
ONES, TOPS, TOP = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0x80)
QUOTES, BACKSLASHES = ONES * np.uint64(QUOTE), ONES * np.uint64(BACKSLASH)
SPACES = ONES * np.uint64(SPACE)

_compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = CompiledFunction


@_compiled
def scan_events(
    data: UInt8Array,
    words: Words,
    starts: Int64Array,
    stops: Int64Array,
    names: Words,
    columns: Int64Array,
    rows: Room,
    images: Room,
    found: ScannedFields,
    hints: Int64Array,
) -> Any:
    """Fills the arrays after `columns`. The row of a delete is its `before`. `words` are the eight
    bytes at every byte, with some slack after the last value. `hints` has room for two numbers,
    because compiled code allocates no memory."""
    codes, has_image, committed_us = found
    numbers, bounds, is_null, have_escapes = rows
    numbers_before, bounds_before, is_null_before, have_escapes_before = images
    hints[:] = NOWHERE
    for row in range(len(starts)):
        start, stop = starts[row], stops[row]
        at, is_deleted = _rows(
            data, words, start, stop, names, columns, row, numbers, bounds, is_null, have_escapes,
            numbers_before, bounds_before, is_null_before, have_escapes_before, has_image,
        )  # fmt: skip
        if at == UNKEPT:
            return HAS_IMAGES
        if at < 0 or not _is_at(data, at, stop, SOURCE) or data[stop - 1] != CLOSING:
            return ODD
        code = _behind(data, at, stop, hints, committed_us, row)
        if code < 0 or (data[code] == SMALL_D) != is_deleted:
            return ODD
        codes[row] = data[code]
    return SOUND


@_compiled
def scan_objects(
    data: UInt8Array,
    words: Words,
    starts: Int64Array,
    stops: Int64Array,
    names: Words,
    columns: Int64Array,
    rows: Room,
) -> Any:
    """Scans bare objects in the same way."""
    numbers, bounds, is_null, have_escapes = rows
    for row in range(len(starts)):
        start, stop = starts[row], stops[row]
        after = _object(
            data, words, start, stop, names, columns, row, numbers, bounds, is_null, have_escapes
        )
        if after != stop:
            return ODD
    return SOUND


@_compiled
def _rows(
    data: UInt8Array, words: Words, start: int, stop: int, names: Words, columns: Int64Array,
    row: int, numbers: Matrix, bounds: Matrix, is_null: Matrix, have_escapes: BoolArray,
    numbers_before: Matrix, bounds_before: Matrix, is_null_before: Matrix,
    have_escapes_before: BoolArray, has_image: BoolArray,
) -> Any:  # fmt: skip
    """Returns where the last row of an event ends, and whether the event is a delete."""
    keeps_images = len(have_escapes_before) > 0
    if not _is_at(data, start, stop, OPENING):
        return NOWHERE, False
    before, at = NOWHERE, start + len(OPENING)
    if words[at] & HALF == NULL:
        at += NULL_BYTES
    else:
        before = at
        if keeps_images:
            at = _object(
                data, words, at, stop, names, columns, row,
                numbers_before, bounds_before, is_null_before, have_escapes_before,
            )  # fmt: skip
        else:
            at = _object(
                data, words, at, stop, names, columns, row,
                numbers, bounds, is_null, have_escapes,
            )  # fmt: skip
    if at < 0 or not _is_at(data, at, stop, AFTER):
        return NOWHERE, False
    at += len(AFTER)
    is_deleted = words[at] & HALF == NULL
    if is_deleted and before < 0:
        return NOWHERE, False
    if before >= 0 and not is_deleted and not keeps_images:
        return UNKEPT, False
    has_image[row] = before >= 0 and not is_deleted
    if not is_deleted or keeps_images:
        after = _object(
            data, words, before if is_deleted else at, stop, names, columns, row,
            numbers, bounds, is_null, have_escapes,
        )  # fmt: skip
        at = at if is_deleted else after
    return at + NULL_BYTES if is_deleted else at, is_deleted


@_compiled
def _behind(
    data: UInt8Array, at: int, stop: int, hints: Int64Array, committed_us: Int64Array, row: int
) -> Any:
    """Reads the commit time; returns where the operation's code is. `hints` has the previous
    event's positions, which are tried first."""
    time = at + hints[0]
    if hints[0] < 0 or not _is_at(data, time, stop, TIME):
        time = _find(data, at, stop, TIME)
        hints[0] = time - at
    operation = stop - hints[1]
    if hints[1] < 0 or not _is_at(data, operation, stop, OPERATION):
        operation = _find_last(data, at, stop, OPERATION)
        hints[1] = stop - operation
    if time < 0 or operation < time:  # a later time is when the event was made, not its commit
        return NOWHERE
    number, after = _integer(data, time + len(TIME))
    if after < 0 or (data[after] != COMMA and data[after] != CLOSING):
        return NOWHERE
    committed_us[row] = number
    code = operation + len(OPERATION)
    return code if code + 1 < stop and data[code + 1] == QUOTE else NOWHERE


@_compiled
def _object(  # noqa: C901 - another call for every value would double the time
    data: UInt8Array, words: Words, at: int, stop: int, names: Words, columns: Int64Array, row: int,
    numbers: Matrix, bounds: Matrix, is_null: Matrix, have_escapes: BoolArray,
) -> Any:  # fmt: skip
    """Returns where the object ends; negative unless it has all members in order and of their
    types, without spaces."""
    for column in range(len(columns)):
        name = columns[column, NAME_FIRST]
        for word in range(columns[column, NAME_WORDS]):
            if words[at + word * WORD_BYTES] & names[name + word, 1] != names[name + word, 0]:
                return NOWHERE
        at += columns[column, NAME_BYTES]
        if at >= stop:
            return NOWHERE
        kind, index = columns[column, KIND], columns[column, PLACE]
        if words[at] & HALF == NULL:
            at += NULL_BYTES
            is_null[column, row] = True
            if kind >= STRING:
                bounds[index, 2 * row] = bounds[index, 2 * row + 1] = at
        elif kind == STRING:
            at = _string(data, words, at, stop, bounds, index, row, have_escapes, column)
        elif kind == FLOAT:
            at, is_exact = _float(data, at, stop, bounds, index, numbers, column, row)
            if not is_exact:
                have_escapes[column] = True
        elif kind == NESTED:
            at = _nested(data, at, stop, bounds, index, row)
        else:
            limit = columns[column, LIMIT]
            number, at = _boolean(data, at, stop) if kind == BOOLEAN else _integer(data, at)
            if number > limit or number < ~limit:
                return NOWHERE
            numbers[column, row] = number
        if at < 0:
            return NOWHERE
    return at + 1 if at < stop and data[at] == CLOSING else NOWHERE


@_compiled
def _string(
    data: UInt8Array, words: Words, at: int, stop: int, bounds: Matrix, index: int, row: int,
    have_escapes: BoolArray, column: int,
) -> Any:  # fmt: skip
    """Scans eight bytes at a time; the lowest byte of a word is the first one of the text."""
    if data[at] != QUOTE:
        return NOWHERE
    at += 1
    bounds[index, 2 * row] = at
    while at < stop:
        word = words[at]
        quotes, backslashes = word ^ QUOTES, word ^ BACKSLASHES
        found = (quotes - ONES) & ~quotes | (backslashes - ONES) & ~backslashes
        found = (found | (word - SPACES) & ~word) & TOPS
        if found == 0:
            at += WORD_BYTES
            continue
        while not found & TOP:
            found >>= BYTE
            at += 1
        if data[at] == QUOTE:
            bounds[index, 2 * row + 1] = at
            return at + 1
        if data[at] != BACKSLASH:
            return NOWHERE
        have_escapes[column] = True
        at += 2
    return NOWHERE


@_compiled
def _nested(data: UInt8Array, at: int, stop: int, bounds: Matrix, index: int, row: int) -> Any:
    """Finds the end of a list or object; its content is left to a parser."""
    if data[at] != LIST and data[at] != OBJECT:
        return NOWHERE
    bounds[index, 2 * row] = at
    depth, is_text = 0, False
    while at < stop:
        byte = data[at]
        at += 1
        if is_text:
            if byte == BACKSLASH:
                at += 1
            is_text = byte != QUOTE
        elif byte == QUOTE:
            is_text = True
        elif byte in (LIST, OBJECT):
            depth += 1
        elif byte in (LIST_END, CLOSING):
            depth -= 1
            if depth == 0:
                bounds[index, 2 * row + 1] = at
                return at
    return NOWHERE


@_compiled
def _integer(data: UInt8Array, at: int) -> Any:
    """Returns a number and where it ends; `-0` and leading zeros are left to the slow reader."""
    is_negative = data[at] == MINUS
    if is_negative:
        at += 1
    first, number, digit = at, np.int64(0), np.int64(data[at]) - ZERO
    while 0 <= digit <= 9:
        number = number * 10 + digit
        at += 1
        digit = np.int64(data[at]) - ZERO
    count = at - first
    if count == 0 or count > DIGITS_MAX or (data[first] == ZERO and (count > 1 or is_negative)):
        return np.int64(0), NOWHERE
    if number < 0 and not (is_negative and number == SMALLEST):  # it overflowed
        return np.int64(0), NOWHERE
    return -number if is_negative else number, at


@_compiled
def _boolean(data: UInt8Array, at: int, stop: int) -> Any:
    if _is_at(data, at, stop, TRUE):
        return np.int64(1), at + len(TRUE)
    if _is_at(data, at, stop, FALSE):
        return np.int64(0), at + len(FALSE)
    return np.int64(0), NOWHERE


@_compiled
def _float(  # noqa: C901 - one grammar
    data: UInt8Array, at: int, stop: int, bounds: Matrix, index: int, numbers: Matrix, column: int,
    row: int,
) -> Any:  # fmt: skip
    """Checks the grammar, so that the next reader need not. Returns whether the number was read
    exactly: a whole number below 2^53 and a power of ten up to 22 are exact doubles, and their
    quotient or product is rounded correctly."""
    first = at
    if data[at] == QUOTE:
        first, at = at + 1, _word(data, at + 1, stop)
        bounds[index, 2 * row], bounds[index, 2 * row + 1] = first, at - 1
        return at, False
    is_negative = data[at] == MINUS
    if is_negative:
        at += 1
    whole = at
    number = np.int64(0)
    power: Any = np.int64(0)
    digit = np.int64(data[at]) - ZERO
    while 0 <= digit <= 9:
        number = number * 10 + digit
        at += 1
        digit = np.int64(data[at]) - ZERO
    if at == whole or (data[whole] == ZERO and at > whole + 1):
        return NOWHERE, False
    count = at - whole
    if data[at] == POINT:
        at += 1
        point = at
        digit = np.int64(data[at]) - ZERO
        while 0 <= digit <= 9:
            number = number * 10 + digit
            at += 1
            digit = np.int64(data[at]) - ZERO
        if at == point:
            return NOWHERE, False
        count += at - point
        power = point - at
    if data[at] in (SMALL_E, LARGE_E):
        is_down = data[at + 1] == MINUS
        digits = at + 2 if data[at + 1] in (MINUS, PLUS) else at + 1
        at = _digits(data, digits)
        if at == digits:
            return NOWHERE, False
        if at - digits > EXPONENT_DIGITS_MAX:
            count = DIGITS_MAX
        exponent = np.int64(0)
        for digit_at in range(digits, min(at, digits + EXPONENT_DIGITS_MAX)):
            exponent = exponent * 10 + np.int64(data[digit_at]) - ZERO
        power += -exponent if is_down else exponent
    bounds[index, 2 * row], bounds[index, 2 * row + 1] = first, at
    is_exact = count < DIGITS_MAX and number <= WHOLE_MAX and -POWER_MAX <= power <= POWER_MAX
    if is_exact:
        found = np.float64(number)
        found = found / POWERS[-power] if power < 0 else found * POWERS[power]
        numbers.view(np.float64)[column, row] = -found if is_negative else found
    return at, is_exact


@_compiled
def _word(data: UInt8Array, at: int, stop: int) -> Any:
    """Returns where a word ends, with its quote: Debezium's words for floats that JSON has no
    numbers for."""
    if _is_at(data, at, stop, NAN):
        return at + len(NAN)
    if data[at] == MINUS:
        at += 1
    return at + len(INFINITY) if _is_at(data, at, stop, INFINITY) else NOWHERE


@_compiled
def _digits(data: UInt8Array, at: int) -> Any:
    while 0 <= np.int64(data[at]) - ZERO <= 9:
        at += 1
    return at


@_compiled
def _is_at(data: UInt8Array, at: int, stop: int, mark: UInt8Array) -> Any:
    if at < 0 or at + len(mark) > stop:
        return False
    for index in range(len(mark)):  # noqa: SIM110 - a generator would not be compiled
        if data[at + index] != mark[index]:
            return False
    return True


@_compiled
def _find(data: UInt8Array, at: int, stop: int, mark: UInt8Array) -> Any:
    while at + len(mark) <= stop:
        if _is_at(data, at, stop, mark):
            return at
        at += 1
    return NOWHERE


@_compiled
def _find_last(data: UInt8Array, start: int, stop: int, mark: UInt8Array) -> Any:
    at = stop - len(mark)
    while at >= start:
        if _is_at(data, at, stop, mark):
            return at
        at -= 1
    return NOWHERE
