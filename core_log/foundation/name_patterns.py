"""Names chosen by globs and `/regular expressions/`; a leading `!` excludes names."""

import re
from collections.abc import Iterable, Sequence

from headwater.core_log.foundation.errors import ConfigError

LENGTH_MAX = 500
"""Much longer than any name; compiling longer expressions is too expensive."""


class Pattern:
    """A pattern for a whole name such as `public.orders`.

    In a glob only `*` (any characters, dots too), `?` (one character) and the backslash (the next
    character literally) are special; brackets are ordinary characters.
    """

    __slots__ = ("_expression", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LENGTH_MAX:
            raise ConfigError(f"a pattern has at most {LENGTH_MAX} characters", has=len(text))
        try:
            self._expression = re.compile(_expression_of(text), re.DOTALL)
        except re.error as error:
            raise ConfigError(
                f"the regular expression is invalid: {error.msg}", pattern=text, position=error.pos
            ) from None

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None

    def groups(self, name: str) -> tuple[str, ...] | None:
        """Returns the text of each group of the expression, or of each `*` of a glob; None if
        `name` does not match. `$1` of a route is the first one."""
        found = self._expression.fullmatch(name)
        return None if found is None else tuple(group or "" for group in found.groups())

    @property
    def group_count(self) -> int:
        return self._expression.groups

    @property
    def is_expression(self) -> bool:
        return _is_expression(self.text)


class Patterns:
    """Patterns that choose names: a name must match one of them and none of those that begin with
    `!`.

    If all patterns begin with `!`, every other name matches. The order does not matter.
    """

    __slots__ = ("_chosen", "_left_out", "texts")

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._left_out = [Pattern(text[1:]) for text in texts if text.startswith("!")]
        self._chosen = [Pattern(text) for text in texts if not text.startswith("!")]
        if self._left_out and not self._chosen:
            self._chosen = [Pattern("*")]

    @property
    def names(self) -> list[str]:
        """Returns the literal names among the choosing patterns; a glob may match nothing."""
        return [
            re.sub(r"\\(.)", r"\1", each.text)
            for each in self._chosen
            if not each.is_expression and not re.search(r"[*?]", re.sub(r"\\.", "", each.text))
        ]

    def find_unmatched(self, found: Iterable[Sequence[str]]) -> list[str]:
        """Returns the literal names that are not among the names found."""
        there = {name for names in found for name in names}
        return [name for name in self.names if self.matches(name) and name not in there]

    def matches(self, name: str) -> bool:
        return self.matches_any((name,))

    def matches_any(self, names: Sequence[str]) -> bool:
        """Returns whether a thing with several names is chosen: it is excluded if any of its names
        is."""
        return any(each.matches(name) for each in self._chosen for name in names) and not any(
            each.matches(name) for each in self._left_out for name in names
        )


def _expression_of(text: str) -> str:
    if _is_expression(text):
        return text[1:-1]
    return "".join(_glob_part(part) for part in re.findall(r"\\.|.", text, re.DOTALL))


def _is_expression(text: str) -> bool:
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


def _glob_part(part: str) -> str:
    if part == "*":
        return "(.*)"
    if part == "?":
        return "."
    return re.escape(part[-1])
