"""References in a file's values: `${env:NAME}`, `${env:NAME:-default}` and `${file:path}`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from headwater.config.document import (
    Document,
    ListNode,
    MappingNode,
    ScalarNode,
    YamlNode,
)
from headwater.config.mistakes import Code, Mistake, TextPosition, did_you_mean
from headwater.config.redaction import Redaction, passwords_in, secrets_in

REFERENCE = re.compile(r"\$(?P<escape>\$)?\{(?P<body>[^{}]*)(?P<end>\})?")
VARIABLE = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
SECRET_BYTES_MAX = 1 << 20
STAND_IN = "\0"
"""Takes the place of a reference while the text around it is looked at; no YAML holds it."""


@dataclass(frozen=True, slots=True)
class Substituted:
    """A document whose references are replaced, as far as what they refer to is there."""

    document: Document
    redaction: Redaction
    mistakes: tuple[Mistake, ...]
    """References that cannot mean anything."""
    unset: tuple[Mistake, ...]
    """References to what is not there, here and now."""


def substitute(document: Document, environment: Mapping[str, str]) -> Substituted:
    """Replaces references in values; keys are left as they are.

    `$${` stands for `${`. A value that comes from a reference is text, however it looks.
    """
    filling = _Filling(document.path, environment)
    root = filling.fill(document.root)
    return Substituted(
        replace(document, root=root),
        Redaction(filling.secrets),
        tuple(filling.mistakes),
        tuple(filling.unset),
    )


def read_again(reference: str, path: Path) -> tuple[str, Redaction] | None:
    """Returns the value of `ScalarNode.reference` with its files as they are now; None while one of
    them cannot be read. `path` is the file that refers to them."""
    filling = _Filling(path, {})
    node = filling.scalar(ScalarNode(TextPosition(0, 0), reference, is_plain=False))
    if filling.mistakes or filling.unset:
        return None
    return node.text, Redaction(filling.secrets)


@dataclass(slots=True)
class _Filling:
    path: Path
    environment: Mapping[str, str]
    secrets: set[str] = field(default_factory=set)
    mistakes: list[Mistake] = field(default_factory=list)
    unset: list[Mistake] = field(default_factory=list)

    def fill(self, node: YamlNode) -> YamlNode:
        if isinstance(node, MappingNode):
            values = {key: self.fill(value) for key, value in node.values.items()}
            return replace(node, values=values)
        if isinstance(node, ListNode):
            return replace(node, items=tuple(self.fill(item) for item in node.items))
        if "${" not in node.text:
            self.secrets |= passwords_in(node.text)
            return node
        return self.scalar(node)

    def scalar(self, node: ScalarNode) -> ScalarNode:
        parts: list[str] = []
        later: list[str] = []
        position, is_unset, has_file = 0, False, False
        credentials, query = _escaped_parts(node.text)
        for found in REFERENCE.finditer(node.text):
            between = node.text[position : found.start()]
            parts.append(between)
            later.append(between)
            position = found.end()
            if found["escape"]:
                parts.append(found[0][1:])
                later.append(found[0])
                continue
            value = self.value(found, node)
            if value is None:
                is_unset = True
            elif found.start() in credentials or found.start() in query:
                value = quote(value, safe="")
            parts.append(value or "")
            is_file = found["body"].startswith("file:")
            has_file |= is_file
            later.append(found[0] if is_file else (value or "").replace("${", "$${"))
        text = "".join([*parts, node.text[position:]])
        reference = "".join([*later, node.text[position:]]) if has_file else ""
        self.secrets |= passwords_in(text)
        return ScalarNode(
            node.text_position, text, is_plain=False, is_unset=is_unset, reference=reference
        )

    def value(self, reference: re.Match[str], node: ScalarNode) -> str | None:
        """Returns the value of a reference; None, and a word about it, where there is none."""
        scheme, separator, rest = reference["body"].partition(":")
        if not reference["end"]:
            self.mistakes.append(
                Mistake(
                    self.path,
                    node.text_position,
                    "a reference is not closed",
                    "write ${env:NAME}",
                    code=Code.BAD_REFERENCE,
                )
            )
            return None
        if not separator or scheme not in ("env", "file"):
            self.mistakes.append(
                Mistake(
                    self.path,
                    node.text_position,
                    "a reference is ${env:NAME}, ${env:NAME:-default} or ${file:path}",
                    _guess(scheme, has_scheme=bool(separator)),
                    code=Code.BAD_REFERENCE,
                )
            )
            return None
        return self.variable(rest, node) if scheme == "env" else self.secret_file(rest, node)

    def variable(self, text: str, node: ScalarNode) -> str | None:
        found = VARIABLE.fullmatch(text)
        if found is None:
            self.mistakes.append(
                Mistake(
                    self.path,
                    node.text_position,
                    "the name of a variable is made of letters, digits and underscores",
                    "write ${env:NAME} or ${env:NAME:-default}",
                    code=Code.BAD_REFERENCE,
                )
            )
            return None
        value = self.environment.get(found["name"])
        if found["default"] is not None and not value:
            return found["default"]
        if value is None:
            self.unset.append(
                Mistake(
                    self.path,
                    node.text_position,
                    f"the environment has no {found['name']}",
                    f"export {found['name']}=...",
                    variable=found["name"],
                    code=Code.UNSET_VARIABLE,
                )
            )
            return None
        self.secrets |= secrets_in(value)
        return value

    def secret_file(self, text: str, node: ScalarNode) -> str | None:
        path = self.path.parent / Path(text).expanduser()
        problem = ""
        try:
            if not path.is_file():
                problem = (
                    "the file does not exist"
                    if not path.exists()
                    else "the path is not a plain file"
                )
            elif path.stat().st_size > SECRET_BYTES_MAX:
                problem = "the file is larger than 1 MiB"
            else:
                value = path.read_text("utf-8").rstrip("\r\n")
                self.secrets |= secrets_in(value)
                return value
        except UnicodeDecodeError:
            problem = "the file is not UTF-8"
        except (OSError, ValueError) as error:
            problem = (getattr(error, "strerror", None) or "the path is not usable").lower()
        problem = f"${{file:{text}}}: {problem}"
        self.unset.append(
            Mistake(self.path, node.text_position, problem, code=Code.UNREADABLE_SECRET)
        )
        return None


def _escaped_parts(text: str) -> tuple[range, range]:
    """Where a URL's user and password stand in `text`, and what follows its question mark: there
    `@`, `/` and `%` of a password would mean something else, so they are escaped."""
    scheme = URL.match(text)
    if scheme is None:
        return range(0), range(0)
    bare = REFERENCE.sub(lambda found: STAND_IN * len(found[0]), text)
    authority = re.split(r"[/?#]", bare[scheme.end() :], maxsplit=1)[0]
    credentials = range(scheme.end(), scheme.end() + authority.rfind("@") + 1)
    question = bare.find("?")
    return credentials, range(question, len(text)) if question >= 0 else range(0)


def _guess(scheme: str, *, has_scheme: bool) -> str:
    if not has_scheme:
        return f"write ${{env:{scheme}}}, or $${{ for the characters themselves"
    guess = did_you_mean(scheme, ("env", "file"))
    return guess if guess.startswith("did") else "$${ stands for the characters themselves"
