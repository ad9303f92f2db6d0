"""Keeps resolved secrets out of everything that is said."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterable
from urllib.parse import quote, quote_plus, unquote

MASK = "***"
EMBEDDED_MIN = 6
"""Shorter secrets are only found where they stand as a word: `dev` is not taken out of `device`."""
WORD = re.compile(r"[A-Za-z]?[a-z]{0,14}|[A-Z]{0,15}")
"""So are those that may be a part of others: `postgres` is not taken out of `postgresql`."""
BEFORE, AFTER = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))", r"(?![A-Za-z0-9_])"
"""Where a word begins, behind an escape of a line's end or of a URL as well, and where it ends."""
VALUE = r"(?<=['\"=:]){}(?=['\"@\s,;)]|$)"
"""The shortest are only found as the value of something: other words are made of them."""
LINE_MIN = 12
SECRET_MIN = 3
NO_SECRET = re.compile(r"\d{1,5}|\d+(ms|s|m|h|d|w|B|KiB|MiB|GiB)|true|false", re.IGNORECASE)
PASSWORD_IN_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://([^\s/?#:@]*):([^\s/]+)@([^\s?#]*)")
PASSWORD_NAMED = re.compile(r"\bpassword\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s'&;]+))", re.IGNORECASE)
"""As connection strings of libpq have it, and queries of addresses."""


class Redaction:
    """Knows secrets in all the forms in which libraries show them, and takes them out of text."""

    __slots__ = ("_expression", "secrets")

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = frozenset(secret for secret in secrets if secret.strip())
        forms = {form for secret in self.secrets for form in _forms(secret)}
        ordered = sorted(forms, key=len, reverse=True)
        self._expression = re.compile("|".join(_found_as(form) for form in ordered) or r"(?!)")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Redaction) and other.secrets == self.secrets

    def __hash__(self) -> int:
        return hash(self.secrets)

    def scrub(self, text: str) -> str:
        """`text` with every secret replaced by three asterisks."""
        return self._expression.sub(MASK, text)

    def merge(self, others: Iterable["Redaction"]) -> "Redaction":
        return Redaction(self.secrets.union(*(other.secrets for other in others)))


def secrets_in(value: str) -> set[str]:
    """Returns the parts to hide of a value that came from a reference: all of it, the password of a
    URL on its own, and every long line of a key file. Texts too short to be a secret, such as the
    number of workers, would only blot out other numbers."""
    if len(value) < SECRET_MIN or NO_SECRET.fullmatch(value):
        return set()
    found = {value} | passwords_in(value)
    lines = value.splitlines()
    if len(lines) > 1:
        found |= {line.strip() for line in lines if len(line.strip()) >= LINE_MIN}
    return found


def passwords_in(value: str) -> set[str]:
    """Passwords inside URLs, as they are written and as they are meant.

    One that is a word of the URL elsewhere, such as its user, or too short to be told from other
    words and numbers, is a secret only where it stands as the password.
    """
    named = {quoted or bare for quoted, bare in PASSWORD_NAMED.findall(value)}
    found = {text for text in named if len(text) >= SECRET_MIN}
    for user, password, rest in PASSWORD_IN_URL.findall(value):
        words = {user, *re.split(r"[/:,]", rest)}
        for text in (password, unquote(password)):
            is_word = text in words or len(text) < SECRET_MIN or NO_SECRET.fullmatch(text)
            found.add(f":{text}@" if is_word else text)
    return found


def _forms(secret: str) -> set[str]:
    plain = {secret, secret.strip()}
    escaped = {
        form
        for text in plain
        for form in (
            repr(text)[1:-1],
            repr(text.encode())[2:-1],
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
        )
    }
    encoded = {
        form
        for text in plain
        for form in (quote(text, safe=""), quote(text), quote(text, safe=" +"), quote_plus(text))
    }
    lower = {re.sub(r"%[0-9A-F]{2}", lambda code: code[0].lower(), form) for form in encoded}
    return {form for form in plain | escaped | encoded | lower if form}


def _found_as(form: str) -> str:
    found = re.escape(form)
    if len(form) < SECRET_MIN:
        return VALUE.format(found)
    if len(form) >= EMBEDDED_MIN and not WORD.fullmatch(form):
        return found
    before = BEFORE if re.match("[A-Za-z0-9_]", form) else ""
    return before + found + (AFTER if re.search("[A-Za-z0-9_]$", form) else "")


FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"


def set_up_logging(level: int, *, scrub: Callable[[str], str] = str) -> None:
    """Sends every log line of the process to stderr; `scrub` takes secrets out of all of it."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLine(scrub))
    lines = logging.getLogger()
    lines.handlers[:] = [handler]  # `basicConfig` would close the others, which are not ours
    lines.setLevel(level)


class OneLine(logging.Formatter):
    """An error's hint stays on the line of its error; a traceback keeps its own lines."""

    converter = staticmethod(time.gmtime)

    def __init__(self, scrub: Callable[[str], str] = str) -> None:
        super().__init__(FORMAT, "%Y-%m-%dT%H:%M:%S")
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        return self._scrub(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = record.message.replace("\n  hint: ", "; hint: ").replace("\n", "\\n")
        return super().formatMessage(record)
