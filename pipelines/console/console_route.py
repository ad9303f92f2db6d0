"""One route of the console: its path, who answers it, and with what."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.console.console_context import ConsoleContext
from headwater.pipelines.terminal.quantities import COUNT, parse_count

API = "/api/v1"
TABLE = API + "/pipelines/{pipeline}/tables/{table}"

Answer = Any
"""A dataclass, a list of them, or a `Response` that is sent as it is."""
ConsoleHandler = Callable[[ConsoleContext, Request], Awaitable[Answer]]


class _Count(IntegerConvertor):
    """A part of a path that is a number; a path with one that no offset has is not served."""

    regex = COUNT.pattern


register_url_convertor("count", _Count())


@dataclass(frozen=True, slots=True)
class ConsoleRoute:
    """`docs/console-api.md` and `docs/openapi.json` are tables of these."""

    method: str
    path: str
    handler: ConsoleHandler
    meaning: str
    answer: Any
    """The type of the answer; `Response` for streams."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Names of its parameters behind the `?`, with their meaning."""
    body: Any = None
    """The type of the body of the request; None where it has none."""
    status: int = 200

    @property
    def is_look(self) -> bool:
        """Whether it changes nothing, so that a read-only console has it."""
        return self.method == "GET"


def number_of(request: Request, name: str, *, default: int, most: int) -> int:
    """A parameter that is a number, at most as large as a look may be."""
    text = request.query_params.get(name)
    if text is None:
        return default
    number = parse_count(text)
    if number is None:
        raise ConfigError("the parameter is not a number", parameter=name)
    return min(number, most)


def is_streamed(route: ConsoleRoute) -> bool:
    return route.answer is Response
