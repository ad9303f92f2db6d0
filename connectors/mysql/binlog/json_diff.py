"""Parts of JSON documents in partial updates, applied to the document before."""

import json
import re

from headwater.connectors.mysql.binlog.byte_reader import ByteReader
from headwater.connectors.mysql.binlog.json_document import JsonNode, parse, write
from headwater.core_log.foundation.errors import DecodeError

REPLACE, INSERT, REMOVE = range(3)
STEP = re.compile(r'\.(?:"((?:[^"\\]|\\.)*)"|([^.\[\s"]+))|\[(\d+)\]')
"""A step of a path: a quoted or a plain name, or an index."""
ASIDE = "an update of a part of JSON does not fit the document before"


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
