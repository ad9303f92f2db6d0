"""The line of a file that a mistake is about, with a caret, and without what may be secret."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from headwater.config.document import Document, ListNode, MappingNode, ScalarNode, YamlNode
from headwater.config.mistakes import KeyPath, Mistake, TextPosition
from headwater.config.redaction import MASK, Redaction

SECRET_KEY = re.compile(
    r"pass|secret|token|salt|credential|jaas|user|url|uri|dsn|conn|header"
    r"|bootstrap|registry|endpoint|(^|[._-])key($|[._-])",
    re.IGNORECASE,
)
"""Keys whose values are not shown, even as the cause of a mistake."""
HOLDS_USER = re.compile(r"://|@")
SHOWN_MAX = 160


class _Span(NamedTuple):
    """Where a key or a value stands in the line, and what is shown of it."""

    begin: int
    end: int
    is_shown: bool


def add_excerpt(mistake: Mistake, document: Document, redaction: Redaction) -> Mistake:
    """The same mistake with the path of its key and its line."""
    place = mistake.place
    if place is None:
        return mistake
    keys = mistake.keys or keys_at(document.root, place)
    return replace(mistake, keys=keys, excerpt=_excerpt(document, place, redaction))


def keys_at(node: YamlNode, place: TextPosition, at: KeyPath = ()) -> KeyPath:
    """The keys that lead to what stands at `place`; a key before a block that it begins."""
    if isinstance(node, MappingNode):
        for key, child in node.values.items():
            is_leaf = isinstance(child, ScalarNode)
            if node.key_places[key] == place or (is_leaf and child.place == place):
                return (*at, key)
            if found := keys_at(child, place, (*at, key)):
                return found
            if child.place == place:
                return (*at, key)
    elif isinstance(node, ListNode):
        for index, child in enumerate(node.items):
            if found := keys_at(child, place, (*at, index)):
                return found
            if child.place == place:
                return (*at, index)
    return ()


def _excerpt(
    document: Document, place: TextPosition, redaction: Redaction
) -> tuple[str, int] | None:
    """The line, and where its caret stands, counted from 0."""
    if len(document.lines) < place.line:
        return None
    line = document.lines[place.line - 1]
    spans = sorted(set(_spans(document.root, place, line)))
    shown, caret, position = "", 0, 0
    for span in (*spans, _Span(len(line), len(line), is_shown=True)):
        if span.begin < position:
            continue
        between, comment, _ = line[position : span.begin].partition("#")
        if position <= place.column - 1 <= span.begin:
            caret = len(shown + _signs(between[: place.column - 1 - position]))
        shown += _signs(between)
        if comment:
            break
        shown += redaction.scrub(line[span.begin : span.end]) if span.is_shown else MASK
        position = span.end
    return shown.rstrip()[:SHOWN_MAX], min(caret, SHOWN_MAX)


def _signs(between: str) -> str:
    """Between keys and values stand signs; what else is there, such as an alias, is not shown."""
    return re.sub(r"[^\s{}\[\],:?'\"&|>-]", "", between)


def _spans(node: YamlNode, place: TextPosition, line: str, at: str = "") -> Iterator[_Span]:
    if isinstance(node, MappingNode):
        for key, child in node.values.items():
            key_place = node.key_places[key]
            if key_place.line == place.line:
                begin = key_place.column - 1
                quotes = 2 if line[begin : begin + 1] in ("'", '"') else 0
                end = begin + len(key) + quotes
                yield _Span(begin, end, is_shown=key in line[begin:end])
            yield from _spans(child, place, line, f"{at}.{key}")
    elif isinstance(node, ListNode):
        for child in node.items:
            yield from _spans(child, place, line, at)
    elif node.place.line <= place.line <= node.end.line:
        begin = node.place.column - 1 if node.place.line == place.line else 0
        end = node.end.column - 1 if node.end.line == place.line else len(line)
        is_secret = SECRET_KEY.search(at) or HOLDS_USER.search(node.text)
        yield _Span(begin, end, is_shown=node.place == place and not is_secret)
