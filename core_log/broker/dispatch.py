"""The table of Kafka APIs that this broker serves: from request to handler, with the versions of
each."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.core_log.broker import handlers
from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.quotas import RequestUse
from headwater.core_log.foundation.endpoint import parse_address
from headwater.core_log.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


class RequestContext(NamedTuple):
    """Context of a request for its handler: the version, and the client."""

    api_version: int
    client_id: str | None
    client_host: str
    listener_host: str
    listener_port: int
    peer: Peer | None = None
    """The client's connection, for who has to tell one from another."""
    principal: Principal = ANONYMOUS
    """The principal that asks. In a request that another broker has passed on it is that broker's
    client."""
    use: RequestUse | None = None
    """The use of the request, where a quota may hold for its client."""


def address_for(broker: "Broker", context: RequestContext) -> tuple[str, int]:
    """Returns where the client reaches this broker: as advertised, or else where it has
    connected."""
    if broker.settings.advertise:
        return parse_address(broker.settings.advertise)
    return context.listener_host, context.listener_port


Handler = Callable[["Broker", Any, RequestContext], Awaitable[Any]]
"""Handler of an ordinary API: takes a declared request, returns a declared response."""

RawHandler = Callable[["Broker", memoryview, int, int, RequestContext], Any]
"""Handler of a hot API (Produce, Fetch): reads the frame in place from a position on, with the
correlation id; returns bytes, a later reply, a coroutine of either, or None."""


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One API with its versions and handler."""

    api_key: int
    name: str
    versions: tuple[int, int]
    advertised_from: int
    request: type
    handler: Handler | None = None
    raw: RawHandler | None = None
    is_forwarded: bool = False
    """Only the controller answers it; other brokers pass it on."""


ONLY_NODES = frozenset({52, 53, 54, 56, 58, 59, 62, 63, 67, 82})
"""APIs that only brokers ask each other for."""
SERVED: dict[int, ServedApi] = {}


def handles(
    request: type,
    *,
    is_forwarded: bool = False,
    name: str = "",
) -> Callable[[Callable[..., Awaitable[Any]]], Callable[..., Awaitable[Any]]]:
    """Registers the handler of an ordinary API. Its `name` is that of the request, but for one with
    private fields."""

    def register(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        _enter(request, None, name, handler=handler, is_forwarded=is_forwarded)
        return handler

    return register


def handles_raw(
    request: type, *, advertised_from: int | None = None
) -> Callable[[RawHandler], RawHandler]:
    """Registers the handler of a hot API, which reads and writes its own bytes."""

    def register(handler: RawHandler) -> RawHandler:
        _enter(request, advertised_from, raw=handler)
        return handler

    return register


def _enter(
    request: Any,
    advertised_from: int | None,
    name: str = "",
    *,
    handler: Handler | None = None,
    raw: RawHandler | None = None,
    is_forwarded: bool = False,
) -> None:
    key, (low, high) = request.api_key, request.versions
    assert key not in SERVED, f"two handlers for API {key}"
    SERVED[key] = ServedApi(
        key,
        name or request.__name__.removesuffix("Request"),
        (low, high),
        low if advertised_from is None else advertised_from,
        request,
        handler,
        raw,
        is_forwarded,
    )


def load_handlers() -> dict[int, ServedApi]:
    """Imports every module of `handlers`, each of which enters itself; returns the table."""
    for module in iter_modules(handlers.__path__):
        import_module(f"{handlers.__name__}.{module.name}")
    return dict(sorted(SERVED.items()))
