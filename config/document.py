"""A YAML file that remembers where every key and value stood, and refuses what nobody means."""

import math
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from headwater.config.mistakes import Code, Mistake, MistakesFound, TextPosition
from headwater.config.redaction import MASK

FILE_BYTES_MAX = 1 << 20
DEPTH_MAX = 32
NODES_MAX = 20_000
"""Far beyond what a person writes; aliases count with all that they stand for."""
LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
"""As YAML's readers count lines."""


class ScalarNode(NamedTuple):
    text_position: TextPosition
    text: str
    is_plain: bool
    """Not quoted: only then `5` is a number."""
    is_unset: bool = False
    """It holds a reference to something that is not there, so it has no value yet."""
    end: TextPosition = TextPosition(0, 0)
    """Behind its last character."""
    reference: str = ""
    """The text with its references to files, and nothing else left to resolve; empty without."""


@dataclass(frozen=True, slots=True)
class ListNode:
    text_position: TextPosition
    items: tuple["YamlNode", ...]


@dataclass(frozen=True, slots=True)
class MappingNode:
    text_position: TextPosition
    values: Mapping[str, "YamlNode"]
    key_positions: Mapping[str, TextPosition]


YamlNode = ScalarNode | ListNode | MappingNode


@dataclass(frozen=True, slots=True)
class Document:
    """One file. Keys are always text, however they are written."""

    path: Path
    root: YamlNode
    lines: Sequence[str] = field(default=(), repr=False, compare=False)
    """As they are written, secrets included."""

    def find(self, keys: Iterable[str | int]) -> tuple[YamlNode, TextPosition, bool]:
        """The deepest node that `keys` lead to, where to point at, and whether all are there."""
        node, text_position = self.root, self.root.text_position
        for key in keys:
            if isinstance(node, MappingNode) and key in node.values:
                text_position = node.key_positions[str(key)]
                node = node.values[str(key)]
            elif isinstance(node, ListNode) and isinstance(key, int) and key < len(node.items):
                node = node.items[key]
                text_position = node.text_position
            else:
                is_block = isinstance(node, MappingNode)
                return node, text_position if is_block else node.text_position, False
        return node, node.text_position, True


def read_document(path: Path) -> Document:
    """Reads a file of a bounded size, and nothing but a file."""
    try:
        found = path.stat()
        # Looked at before it is opened: opening a pipe waits for somebody to write into it.
        if not stat.S_ISREG(found.st_mode):
            raise MistakesFound(
                [Mistake(path, None, "the path is not a plain file", code=Code.UNREADABLE)]
            )
        if found.st_size > FILE_BYTES_MAX:
            raise MistakesFound(
                [Mistake(path, None, _too_large(found.st_size), code=Code.UNREADABLE)]
            )
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        problem = (error.strerror or "the file cannot be read").lower()
        raise MistakesFound([Mistake(path, None, problem, code=Code.UNREADABLE)]) from None
    return parse_document(content, path)


def parse_document(content: bytes, path: Path) -> Document:
    """The content of a file as a tree; raises `MistakesFound` with the first break of it."""
    if len(content) > FILE_BYTES_MAX:
        raise MistakesFound([Mistake(path, None, _too_large(len(content)), code=Code.UNREADABLE)])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        text_position, problem = TextPosition(line, column), "the file is not UTF-8"
        raise MistakesFound([Mistake(path, text_position, problem, code=Code.UNREADABLE)]) from None
    try:
        return Document(path, _Composer(text, path).document(), LINE_END.split(text))
    except yaml.YAMLError as error:
        raise MistakesFound([fault_of(error, text, path)]) from None


def plain(node: YamlNode) -> Any:
    """The values alone, scalars as YAML 1.2 understands them."""
    if isinstance(node, MappingNode):
        return {key: plain(value) for key, value in node.values.items()}
    if isinstance(node, ListNode):
        return [plain(item) for item in node.items]
    return resolve_scalar(node.text) if node.is_plain else node.text


def references_in(
    node: YamlNode, at: tuple[str | int, ...] = ()
) -> dict[tuple[str | int, ...], str]:
    """The references to files below a node, by the path of their key."""
    if isinstance(node, MappingNode):
        below = [references_in(value, (*at, key)) for key, value in node.values.items()]
    elif isinstance(node, ListNode):
        below = [references_in(item, (*at, number)) for number, item in enumerate(node.items)]
    else:
        below = [{at: node.reference}] if node.reference else []
    return {path: text for each in below for path, text in each.items()}


# libyaml where the wheel has it, as all published ones do: twenty times faster. Only the events
# are used, so that no constructor of a Python object is ever near.
_EVENTS: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class _Composer:
    """Events to nodes, with every bound checked before anything is kept."""

    text: str
    path: Path
    node_count: int = 0
    depth: int = 0
    anchors: dict[str, tuple[YamlNode, int]] = field(default_factory=dict)
    """Per anchor what it stands for and how many nodes that is."""
    events: Any = None

    def document(self) -> YamlNode:
        self.events = _EVENTS(self.text)
        try:
            self.events.get_event()
            if isinstance(self.events.get_event(), yaml.StreamEndEvent):
                hint = "headwater init"
                raise self.mistake(TextPosition(1, 1), "the file is empty", hint, Code.UNREADABLE)
            root = self.node(self.events.get_event())
            self.events.get_event()
            event = self.events.get_event()
            if not isinstance(event, yaml.StreamEndEvent):
                raise self.mistake(
                    text_position_of(event.start_mark),
                    "a file holds one document",
                    "use one file each",
                )
            return root
        finally:
            self.events.dispose()

    def node(self, event: Any) -> YamlNode:
        kind, text_position = type(event), text_position_of(event.start_mark)
        if kind is yaml.AliasEvent:
            return self.resolve_alias(event.anchor, text_position)
        if event.tag is not None:
            raise self.mistake(
                text_position,
                "tags are not used here",
                "put text that begins with ! between quotes",
            )
        before = self.node_count
        self.count(1, text_position)
        if kind is yaml.ScalarEvent:
            node: YamlNode = ScalarNode(
                text_position, event.value, not event.style, end=text_position_of(event.end_mark)
            )
        else:
            self.depth += 1
            if self.depth > DEPTH_MAX:
                raise self.mistake(text_position, f"the value is nested more than {DEPTH_MAX} deep")
            node = (
                self.items(text_position)
                if kind is yaml.SequenceStartEvent
                else self.mapping(text_position)
            )
            self.depth -= 1
        if event.anchor is not None:
            self.anchors[event.anchor] = node, self.node_count - before
        return node

    def items(self, text_position: TextPosition) -> ListNode:
        items: list[YamlNode] = []
        while type(event := self.events.get_event()) is not yaml.SequenceEndEvent:
            items.append(self.node(event))
        return ListNode(text_position, tuple(items))

    def mapping(self, text_position: TextPosition) -> MappingNode:
        values: dict[str, YamlNode] = {}
        text_positions: dict[str, TextPosition] = {}
        while type(event := self.events.get_event()) is not yaml.MappingEndEvent:
            key = self.key(event)
            if key.text in values:
                first = text_positions[key.text]
                raise self.mistake(
                    key.text_position,
                    f"the key {key.text!r} occurs twice, first in line {first.line}",
                )
            values[key.text], text_positions[key.text] = (
                self.node(self.events.get_event()),
                key.text_position,
            )
        return MappingNode(text_position, values, text_positions)

    def key(self, event: Any) -> ScalarNode:
        key = self.node(event)
        if not isinstance(key, ScalarNode):
            raise self.mistake(key.text_position, "a key is one word, not a list or a mapping")
        if key.text == "<<" and key.is_plain:
            raise self.mistake(
                key.text_position, "merge keys are no part of YAML 1.2", "write the keys out"
            )
        return key

    def resolve_alias(self, anchor: str | None, text_position: TextPosition) -> YamlNode:
        if anchor is None or anchor not in self.anchors:
            raise self.mistake(
                text_position,
                "an alias stands for something written before it",
                "put text that begins with * between quotes",
            )
        node, size = self.anchors[anchor]
        self.count(size, text_position)
        return node

    def count(self, nodes: int, text_position: TextPosition) -> None:
        self.node_count += nodes
        if self.node_count > NODES_MAX:
            raise self.mistake(
                text_position,
                f"the file has more than {NODES_MAX:,} values, aliases counted in full",
            )

    def mistake(
        self,
        text_position: TextPosition,
        problem: str,
        hint: str = "",
        code: Code = Code.UNUSED_YAML,
    ) -> MistakesFound:
        return MistakesFound(
            [
                Mistake(
                    self.path,
                    text_position,
                    problem,
                    hint,
                    code=code,
                    excerpt=bare_line(self.text, text_position),
                )
            ]
        )


def _too_large(size_bytes: int) -> str:
    return f"the file is larger than 1 MiB, it has {size_bytes:,} bytes"


COMPARED_MAX = 1_000
"""How much of a line is looked at for the cause of a mistake."""


def fault_of(error: yaml.YAMLError, text: str, path: Path) -> Mistake:
    """The parser's words, which never quote the file, and what usually causes them."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is None:
        position = getattr(error, "position", -1)
        problem = "a control character cannot stand in YAML"
        return Mistake(path, _text_position_at(text, position), problem, code=Code.NO_YAML)
    problem = str(getattr(error, "problem", None) or "the file is not YAML")
    begin = _line_start(text, mark.line)
    line = text[begin : begin + COMPARED_MAX].partition("\n")[0]
    return Mistake(
        path,
        text_position_of(mark),
        problem[:1].lower() + problem[1:],
        _usual_cause(line[mark.column :], line, problem),
        code=Code.NO_YAML,
        excerpt=bare_line(text, text_position_of(mark)),
    )


def bare_line(text: str, text_position: TextPosition) -> tuple[str, int]:
    """Returns the line of a file that is no tree yet: only the key that it begins with is surely no
    secret."""
    begin = _line_start(text, text_position.line - 1)
    line = text[begin : begin + COMPARED_MAX].partition("\n")[0].rstrip()
    head = re.match(r"[ \t]*(?:- +)*(?:[A-Za-z_][\w.-]*:(?= |$))?", line)[0]  # type: ignore[index]
    shown = head if head == line else f"{head} {MASK}" if head.strip() else f"{head}{MASK}"
    caret = (
        text_position.column - 1 if text_position.column <= len(head) else len(shown) - len(MASK)
    )
    return shown.replace("\t", " "), max(caret, 0)


def _line_start(text: str, line: int) -> int:
    position = 0
    for _ in range(line):
        position = text.find("\n", position) + 1
    return position


def _text_position_at(text: str, position: int) -> TextPosition | None:
    if not 0 <= position <= len(text):
        return None
    return TextPosition(text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position))


def _usual_cause(rest: str, line: str, problem: str) -> str:
    if "\t" in re.match(r"\s*", line)[0] or rest.startswith("\t"):  # type: ignore[index]
        return "indent with spaces, a tab cannot"
    if re.match(r"[@`%]", rest):
        return f"put text that begins with {rest[0]} between quotes"
    if re.search(r"[\[,:-]\s*\*", line) and ("alias" in problem or "alphabetic" in problem):
        return "put text that begins with * between quotes"
    if re.search(r"[\[,:-]\s*!", line) and ("tag" in problem or "whitespace" in problem):
        return "put text that begins with ! between quotes"
    if re.search(r":\s*\{", line) and "expected key" in problem:
        return "put text that begins with { between quotes"
    if "mapping values are not allowed" in problem:
        return "put text that holds a colon and a space between quotes, or check the indentation"
    return ""


def text_position_of(mark: Any) -> TextPosition:
    return TextPosition(mark.line + 1, mark.column + 1)


Scalar = str | int | float | bool | None

NULLS = {"", "~", "null", "Null", "NULL"}
BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
DECIMAL = re.compile(r"[-+]?[0-9]+")
OCTAL = re.compile(r"0o[0-7]+")
HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"([-+]?)\.(?:inf|Inf|INF)")
NOT_A_NUMBER = {".nan", ".NaN", ".NAN"}
DIGITS_MAX = 300
"""Longer numbers stay text: turning them into numbers costs time squared, and fits no column."""


def resolve_scalar(text: str) -> Scalar:
    """The value of a scalar that is not quoted (YAML 1.2.2, chapter 10.3.2)."""
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if text[0] not in "+-.0123456789" or len(text) > DIGITS_MAX:
        return text
    if DECIMAL.fullmatch(text):
        return int(text)
    if OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if FLOAT.fullmatch(text):
        return float(text)
    if infinity := INFINITY.fullmatch(text):
        return -math.inf if infinity[1] == "-" else math.inf
    return math.nan if text in NOT_A_NUMBER else text
