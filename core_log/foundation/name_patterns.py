"""Names chosen by globs and `/regular expressions/`, with `!` in front of what is left out."""

import re
from collections.abc import Iterable, Sequence

from headwater.core_log.foundation.errors import ConfigError

LENGTH_MAX = 500
"""Far more than a name has; compiling longer expressions costs more than they can mean."""


class Pattern:
    """One pattern over a whole name such as `public.orders`.

    In a glob only `*` (any characters, dots too), `?` (one character) and the backslash (the next
    character as it is) are special; brackets are letters like others.
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
                f"this is no regular expression: {error.msg}", pattern=text, position=error.pos
            ) from None

    def matches(self, name: str) -> bool:
        return self._expression.fullmatch(name) is not None

    def groups(self, name: str) -> tuple[str, ...] | None:
        """What the groups of the expression, or each `*` of a glob, stand for in `name`; None when
        it does not match. `$1` of a route is the first of them."""
        found = self._expression.fullmatch(name)
        return None if found is None else tuple(group or "" for group in found.groups())

    @property
    def group_count(self) -> int:
        return self._expression.groups

    @property
    def is_expression(self) -> bool:
        return _is_expression(self.text)


class Patterns:
    """Names that match one of the patterns and none of those that begin with `!`.

    With nothing but `!` patterns, every other name matches. The order has no meaning.
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
        """Those that the chosen patterns write out: a glob may well match nothing."""
        return [
            re.sub(r"\\(.)", r"\1", each.text)
            for each in self._chosen
            if not each.is_expression and not re.search(r"[*?]", re.sub(r"\\.", "", each.text))
        ]

    def find_unmatched(self, found: Iterable[Sequence[str]]) -> list[str]:
        """Names that are written out, and that nothing of what was found has."""
        there = {name for names in found for name in names}
        return [name for name in self.names if self.matches(name) and name not in there]

    def matches(self, name: str) -> bool:
        return self.matches_any((name,))

    def matches_any(self, names: Sequence[str]) -> bool:
        """Of something that has several names: by whichever of them it is left out, it is."""
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
