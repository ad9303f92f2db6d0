"""The door of the HTTP API: lets in who means us, comes from no web page, and holds the token."""

import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, AsgiSend], Awaitable[None]]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
SCHEME = b"bearer "


class Guard:
    """Stands before every route, those that do not exist included.

    A web page that a browser on this machine has open can send requests to loopback. Its `Origin`
    gives it away, or, where it has made its own name point here, the `Host`; and the token, which
    only readers of `endpoint.json` know, it has not.
    """

    def __init__(self, app: App, *, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in LOOPBACK_NAMES}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        assert scope["type"] == "http", "neither lifespan nor websockets are served"
        refusal = self._refusal(scope["headers"])
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await _refuse(send, *refusal)

    def _refusal(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str, str] | None:
        """Status, what is so, and what to do."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            found.setdefault(name.lower(), []).append(value)
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 403, "this host is not one of ours", "use the address in endpoint.json"
        if any(origin.lower() not in self._origins for origin in origins):
            return 403, "requests from other web pages are refused", ""
        if not self._has_token(found.get(b"authorization", [])):
            return 401, "the token is missing or wrong", "send the token of endpoint.json: Bearer"
        return None

    def _has_token(self, given: list[bytes]) -> bool:
        if len(given) != 1 or not given[0].lower().startswith(SCHEME):
            return False
        return hmac.compare_digest(given[0][len(SCHEME) :].strip(), self._token)


async def _refuse(send: AsgiSend, status: int, problem: str, hint: str) -> None:
    error: dict[str, object] = {
        "kind": "Refused",
        "problem": problem,
        "hint": hint or None,
        "facts": {},
    }
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"connection", b"close"),  # a body that nobody reads may still be on its way
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps({"error": error})})
