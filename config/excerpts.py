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
    text_position = mistake.text_position
    if text_position is None:
        return mistake
    keys = mistake.keys or keys_at(document.root, text_position)
    return replace(mistake, keys=keys, excerpt=_excerpt(document, text_position, redaction))


def keys_at(node: YamlNode, text_position: TextPosition, at: KeyPath = ()) -> KeyPath:
    """The keys that lead to what stands at `place`; a key before a block that it begins."""
    if isinstance(node, MappingNode):
        for key, child in node.values.items():
            is_leaf = isinstance(child, ScalarNode)
            if node.key_positions[key] == text_position or (
                is_leaf and child.text_position == text_position
            ):
                return (*at, key)
            if found := keys_at(child, text_position, (*at, key)):
                return found
            if child.text_position == text_position:
                return (*at, key)
    elif isinstance(node, ListNode):
        for index, child in enumerate(node.items):
            if found := keys_at(child, text_position, (*at, index)):
                return found
            if child.text_position == text_position:
                return (*at, index)
    return ()


def _excerpt(
    document: Document, text_position: TextPosition, redaction: Redaction
) -> tuple[str, int] | None:
    """The line, and where its caret stands, counted from 0."""
    if len(document.lines) < text_position.line:
        return None
    line = document.lines[text_position.line - 1]
    spans = sorted(set(_spans(document.root, text_position, line)))
    shown, caret, position = "", 0, 0
    for span in (*spans, _Span(len(line), len(line), is_shown=True)):
        if span.begin < position:
            continue
        between, comment, _ = line[position : span.begin].partition("#")
        if position <= text_position.column - 1 <= span.begin:
            caret = len(shown + _signs(between[: text_position.column - 1 - position]))
        shown += _signs(between)
        if comment:
            break
        shown += redaction.scrub(line[span.begin : span.end]) if span.is_shown else MASK
        position = span.end
    return shown.rstrip()[:SHOWN_MAX], min(caret, SHOWN_MAX)


def _signs(between: str) -> str:
    """Between keys and values stand signs; what else is there, such as an alias, is not shown."""
    return re.sub(r"[^\s{}\[\],:?'\"&|>-]", "", between)


def _spans(node: YamlNode, text_position: TextPosition, line: str, at: str = "") -> Iterator[_Span]:
    if isinstance(node, MappingNode):
        for key, child in node.values.items():
            key_position = node.key_positions[key]
            if key_position.line == text_position.line:
                begin = key_position.column - 1
                quotes = 2 if line[begin : begin + 1] in ("'", '"') else 0
                end = begin + len(key) + quotes
                yield _Span(begin, end, is_shown=key in line[begin:end])
            yield from _spans(child, text_position, line, f"{at}.{key}")
    elif isinstance(node, ListNode):
        for child in node.items:
            yield from _spans(child, text_position, line, at)
    elif node.text_position.line <= text_position.line <= node.end.line:
        begin = (
            node.text_position.column - 1 if node.text_position.line == text_position.line else 0
        )
        end = node.end.column - 1 if node.end.line == text_position.line else len(line)
        is_secret = SECRET_KEY.search(at) or HOLDS_USER.search(node.text)
        yield _Span(begin, end, is_shown=node.text_position == text_position and not is_secret)
