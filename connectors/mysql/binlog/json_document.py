"""Reads MySQL's binary JSON and its partial updates, and writes the text that the server writes."""

import base64
import json
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

from headwater.connectors.mysql.binlog import table_map as wire
from headwater.connectors.mysql.binlog.byte_reader import ByteReader, decimal_reader
from headwater.connectors.mysql.binlog.table_map import JSON, TableMap
from headwater.core_log.foundation.errors import DecodeError

JsonNode: TypeAlias = dict[str, "JsonNode"] | list["JsonNode"] | str

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY, LITERAL = range(5)
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = range(5, 13)
OPAQUE = 15
LITERALS = ("null", "true", "false")
NUMBERS = {
    INT16: (2, True), UINT16: (2, False), INT32: (4, True), UINT32: (4, False),
    INT64: (8, True), UINT64: (8, False),
}  # fmt: skip
"""Bytes of a number, and whether it is signed."""
BROKEN = "a JSON document of the binary log is broken"
DEPTH_MAX = 100
"""The server's own limit."""
ENTRY_BYTES_MIN = 3
VARLEN_BYTES_MAX = 5
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
           "\t": "\\t"}  # fmt: skip
TO_ESCAPE = str.maketrans(
    {chr(code): f"\\u{code:04x}" for code in range(32)} | ESCAPES,
)
F_FORMAT_MIN, F_FORMAT_MAX = -14, 15
"""Places of the decimal point between which the server writes a double without exponent."""


TEXT_DOCUMENT = b"\xff"
"""Before a document that is text already; no binary one begins with it."""

PARTIAL_JSON = 1

REPLACE, INSERT, REMOVE = range(3)
STEP = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\[\s"]+))|\[(\d+)\]')
"""A step of a path: a quoted or a plain name, or an index."""
ASIDE = "an update of a part of JSON does not fit the document before"


def document_text(document: bytes) -> str:
    """Returns the text of a document that may be text already."""
    if document[:1] != TEXT_DOCUMENT:
        return json_text(document)
    try:
        return document[1:].decode()
    except UnicodeDecodeError:
        raise DecodeError(BROKEN) from None


def json_text(document: bytes) -> str:
    """Returns the server's text of a binary document."""
    return write(parse(document))


def write(node: JsonNode) -> str:
    if isinstance(node, str):
        return node
    if isinstance(node, list):
        return f"[{', '.join(map(write, node))}]"
    return "{" + ", ".join(f"{quote(name)}: {write(each)}" for name, each in node.items()) + "}"


def quote(text: str) -> str:
    return f'"{text.translate(TO_ESCAPE)}"'


def parse(document: bytes) -> JsonNode:
    if not document:
        return "null"
    try:
        return _Parser(document).value(document[0], 1, depth=1)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise DecodeError(BROKEN) from None


class _Parser:
    """Every value has an entry or more bytes of its own, which bounds the size of the tree."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = len(data) // ENTRY_BYTES_MIN + 1

    def value(self, kind: int, pos: int, *, depth: int) -> JsonNode:
        if kind in (SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY):
            return self._container(kind, pos, depth=depth)
        if kind == LITERAL:
            return LITERALS[self.data[pos]]
        if kind in NUMBERS:
            width, is_signed = NUMBERS[kind]
            return str(int.from_bytes(self._at(pos, width), "little", signed=is_signed))
        if kind == DOUBLE:
            return double_text(struct.unpack_from("<d", self.data, pos)[0])
        if kind == STRING:
            length, pos = self._length(pos)
            return quote(self._at(pos, length).decode())
        if kind == OPAQUE:
            length, start = self._length(pos + 1)
            return opaque_text(self.data[pos], self._at(start, length))
        raise DecodeError("a JSON document of the binary log has an unknown type", type=kind)

    def _container(self, kind: int, pos: int, *, depth: int) -> JsonNode:
        if depth > DEPTH_MAX:
            raise DecodeError("a JSON document of the binary log is nested too deeply")
        is_object, is_large = (
            kind in (SMALL_OBJECT, LARGE_OBJECT),
            kind in (LARGE_OBJECT, LARGE_ARRAY),
        )
        width = 4 if is_large else 2
        reader = ByteReader(self.data, pos)
        count = reader.uint(width)
        reader.uint(width)
        self.left -= count
        if self.left < 0:
            raise DecodeError("a JSON document of the binary log has more values than bytes")
        names = []
        for _ in range(count if is_object else 0):
            start, length = reader.uint(width), reader.uint(2)
            names.append(self._at(pos + start, length).decode())
        values: list[JsonNode] = []
        for _ in range(count):
            each = reader.byte()
            if each == LITERAL or each in (INT16, UINT16) or (is_large and each in (INT32, UINT32)):
                values.append(self.value(each, reader.skip(width), depth=depth + 1))
            else:
                values.append(self.value(each, pos + reader.uint(width), depth=depth + 1))
        return dict(zip(names, values, strict=True)) if is_object else values

    def _at(self, pos: int, length: int) -> bytes:
        found = self.data[pos : pos + length]
        if len(found) != length:
            raise DecodeError(BROKEN)
        return found

    def _length(self, pos: int) -> tuple[int, int]:
        found = 0
        for at in range(VARLEN_BYTES_MAX):
            byte = self.data[pos + at]
            found |= (byte & 0x7F) << (7 * at)
            if byte < 0x80:
                return found, pos + at + 1
        raise DecodeError("a JSON document of the binary log has an endless length")


def double_text(value: float) -> str:
    """Returns the shortest digits that give the same double, in the server's form."""
    if value == 0:
        return "-0.0" if str(value).startswith("-") else "0.0"
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    if not isinstance(exponent, int):
        raise DecodeError("a JSON document of the binary log has a number that is not finite")
    text = "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent
    minus = "-" if sign else ""
    if not F_FORMAT_MIN <= point <= F_FORMAT_MAX:
        fraction = f".{text[1:]}" if text[1:] else ""
        return f"{minus}{text[0]}{fraction}e{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    whole = text[:point].ljust(point, "0")
    return f"{minus}{whole}.{text[point:] or '0'}"


def opaque_text(kind: int, data: bytes) -> str:
    """Returns a value of a type of SQL inside of JSON."""
    if kind == wire.NEWDECIMAL and len(data) >= 2:
        return decimal_reader(data[0], data[1])(data[2:])
    if kind in (wire.DATE, wire.DATETIME, wire.TIMESTAMP) and len(data) == 8:
        return f'"{_moment_text(int.from_bytes(data, "little", signed=True), kind)}"'
    if kind == wire.TIME and len(data) == 8:
        packed = int.from_bytes(data, "little", signed=True)
        return f'"{time_text(_time_us(packed))}"'
    return f'"base64:type{kind}:{_base64(data)}"'


LINE_BYTES = 57
"""The server breaks lines of base64 after 76 characters."""


def _base64(data: bytes) -> str:
    lines = [
        base64.b64encode(data[at : at + LINE_BYTES]).decode()
        for at in range(0, len(data), LINE_BYTES)
    ]
    return "\\n".join(lines)


def _moment_text(packed: int, kind: int) -> str:
    whole, micro = packed >> 24, packed & 0xFFFFFF
    date, time = whole >> 17, whole & 0x1FFFF
    year, month = divmod(date >> 5, 13)
    day = f"{year:04}-{month:02}-{date & 31:02}"
    if kind == wire.DATE:
        return day
    return f"{day} {time >> 12:02}:{time >> 6 & 63:02}:{time & 63:02}.{micro:06}"


def _time_us(packed: int) -> int:
    """Returns microseconds; a negative time is the negative of the whole, with its fraction."""
    whole, micro = abs(packed) >> 24, abs(packed) & 0xFFFFFF
    seconds = ((whole >> 12 & 0x3FF) * 60 + (whole >> 6 & 63)) * 60 + (whole & 63)
    found = seconds * 1_000_000 + micro
    return -found if packed < 0 else found


def time_text(us: int) -> str:
    minus, size = ("-" if us < 0 else ""), abs(us)
    seconds, micro = divmod(size, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"{minus}{hours:02}:{minute:02}:{second:02}.{micro:06}"


def whole_updates(
    rows: bytes, table: TableMap, images: Sequence[Sequence[int]], widths: Sequence[int]
) -> tuple[bytes, bool]:
    """Returns the rows of an event in the form of an ordinary update, and whether a part of a
    document has nothing to be applied to, which becomes null."""
    before, after = images
    json_places = [place for place, each in enumerate(table.columns) if each.type == JSON]
    reader, found, is_unapplied = ByteReader(rows), list[bytes](), False
    while reader.left:
        start = reader.pos
        nulls = reader.take((len(before) + 7) // 8)
        olds = _documents(reader, before, widths, nulls, json_places)
        found.append(rows[start : reader.pos])
        partial = _partial_places(reader, json_places)
        bits, values = bytearray(reader.take((len(after) + 7) // 8)), list[bytes]()
        for at, (place, width) in enumerate(zip(after, widths[len(before) :], strict=True)):
            if bits[at // 8] >> at % 8 & 1:
                continue
            if place not in partial:
                start = reader.pos
                _skip(reader, width)
                values.append(rows[start : reader.pos])
                continue
            document = _applied(reader.take(reader.uint(4)), olds.get(place))
            if document is None:
                bits[at // 8] |= 1 << at % 8
                is_unapplied = True
            else:
                values.append(len(document).to_bytes(-width, "little") + document)
        found += [bytes(bits), *values]
        if not (before or after):
            break
    return b"".join(found), is_unapplied


def _applied(diffs: bytes, before: bytes | None) -> bytes | None:
    if before is None or not diffs:
        return before
    return TEXT_DOCUMENT + _apply_diffs(diffs, before).encode()


def _documents(
    reader: ByteReader,
    places: Sequence[int],
    widths: Sequence[int],
    nulls: bytes,
    json_places: Sequence[int],
) -> Mapping[int, bytes]:
    """Returns the documents of an image, and steps over it."""
    found = {}
    for at, (place, width) in enumerate(zip(places, widths, strict=False)):
        if nulls[at // 8] >> at % 8 & 1:
            continue
        if place in json_places:
            found[place] = reader.take(reader.uint(-width))
        else:
            _skip(reader, width)
    return found


def _partial_places(reader: ByteReader, json_places: Sequence[int]) -> set[int]:
    if not reader.lenenc() & PARTIAL_JSON:
        return set()
    bits = reader.take((len(json_places) + 7) // 8)
    return {place for at, place in enumerate(json_places) if bits[at // 8] >> at % 8 & 1}


def _skip(reader: ByteReader, width: int) -> None:
    reader.skip(width if width >= 0 else reader.uint(-width))


def _apply_diffs(data: bytes, before: bytes) -> str:
    """Returns the text of the document after the update."""
    diffs, document = ByteReader(data), parse(before)
    while diffs.left:
        document = _apply(document, diffs)
    return write(document)


def _apply(document: JsonNode, diffs: ByteReader) -> JsonNode:
    operation = diffs.byte()
    steps = _steps(diffs.text(diffs.lenenc()))
    value: JsonNode = "" if operation == REMOVE else parse(diffs.take(diffs.lenenc()))
    if not steps:
        if operation != REPLACE:
            raise DecodeError(ASIDE)
        return value
    parent = document
    for step in steps[:-1]:
        parent = _child(parent, step)
    last = steps[-1]
    if isinstance(parent, dict) and isinstance(last, str):
        _apply_to_object(parent, last, operation, value)
    elif isinstance(parent, list) and isinstance(last, int):
        _apply_to_array(parent, last, operation, value)
    else:
        raise DecodeError(ASIDE)
    return document


def _apply_to_object(
    parent: dict[str, JsonNode], name: str, operation: int, value: JsonNode
) -> None:
    if (operation == INSERT) == (name in parent):
        raise DecodeError(ASIDE)
    if operation == REMOVE:
        del parent[name]
    else:
        parent[name] = value
        _sort(parent)


def _apply_to_array(parent: list[JsonNode], index: int, operation: int, value: JsonNode) -> None:
    if operation == INSERT:
        parent.insert(index, value)
    elif index >= len(parent):
        raise DecodeError(ASIDE)
    elif operation == REMOVE:
        del parent[index]
    else:
        parent[index] = value


def _child(node: JsonNode, step: str | int) -> JsonNode:
    if isinstance(node, dict) and isinstance(step, str) and step in node:
        return node[step]
    if isinstance(node, list) and isinstance(step, int) and step < len(node):
        return node[step]
    raise DecodeError(ASIDE)


def _sort(node: dict[str, JsonNode]) -> None:
    """The server orders names by length, then by bytes."""
    names = sorted(node, key=lambda name: (len(name.encode()), name.encode()))
    ordered = {name: node[name] for name in names}
    node.clear()
    node.update(ordered)


def _steps(path: str) -> list[str | int]:
    if not path.startswith("$"):
        raise DecodeError("a path of a partial update is not one of JSON")
    found: list[str | int] = []
    pos = 1
    while pos < len(path):
        step = STEP.match(path, pos)
        if step is None:
            raise DecodeError("a path of a partial update is not one of JSON")
        quoted, plain, index = step.groups()
        if index is not None:
            found.append(int(index))
        else:
            found.append(plain if quoted is None else _unquote(quoted))
        pos = step.end()
    return found


def _unquote(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        raise DecodeError("a path of a partial update is not one of JSON") from None
