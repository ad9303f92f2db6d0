"""Updates of parts of JSON documents, written as updates with whole documents."""

import json
import re
from collections.abc import Mapping, Sequence

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.binlog.json_document import TEXT_DOCUMENT, JsonNode, parse, write
from headwater.connectors.mysql.binlog.table_map import JSON, TableMap
from headwater.core_log.foundation.errors import DecodeError

PARTIAL_JSON = 1

REPLACE, INSERT, REMOVE = range(3)
STEP = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\[\s"]+))|\[(\d+)\]')
"""A step of a path: a quoted or a plain name, or an index."""
ASIDE = "an update of a part of JSON does not fit the document before"


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
    return TEXT_DOCUMENT + apply_diffs(diffs, before).encode()


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


def apply_diffs(data: bytes, before: bytes) -> str:
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
