"""Lets requests through to the routes: by their host, their origin and their token."""

import hmac
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import orjson

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
AsgiSend = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, AsgiSend], Awaitable[None]]
NeedsToken = Callable[[str], bool]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
SCHEME = b"bearer "
OWN_SITES = (b"same-origin", b"none")
"""The header of a browser for requests of our own page, and for those that a person has typed."""
PROBES = ("/healthz", "/readyz")
"""Answered to everybody, because orchestrators have no token and use addresses as host names."""
TOKEN_LENGTH_MIN = 16


class Guard:
    """Stands before every route, those that do not exist included.

    A web page that a browser on this machine has open can send requests to loopback. Its `Origin`
    gives it away, or, where it has made its own name point here, the `Host`; and the token, which
    only readers of `endpoint.json` or of the token file know, it has not.
    """

    def __init__(
        self,
        app: App,
        *,
        token: str,
        port: int,
        needs_token: NeedsToken = lambda _: True,
        names: Sequence[str] = (),
        token_file: Path | None = None,
        is_encrypted: bool = False,
    ) -> None:
        """`needs_token` tells it of a path: a page has none before its script has run. `names` are
        further ones by which this server is called; an empty token is nobody's."""
        self._app, self._token, self._needs_token = app, token.encode(), needs_token
        self._token_file = token_file
        own = b"https://" if is_encrypted else b"http://"
        local = {f"{name}:{port}".encode() for name in LOOPBACK_NAMES}
        further = {host.encode() for name in names for host in hosts_of(name.lower(), port)}
        self._hosts = local | further
        self._origins = {own + host for host in self._hosts}
        self._origins |= {b"https://" + host for host in further}  # of a proxy that encrypts

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        assert scope["type"] == "http", "neither lifespan nor websockets are served"
        refusal = self._refusal(scope["path"], scope["headers"])
        if refusal is None or (scope["path"] in PROBES and scope["method"] in ("GET", "HEAD")):
            await self._app(scope, receive, send)
        else:
            await _refuse(send, *refusal)

    def _refusal(
        self, path: str, headers: Iterable[tuple[bytes, bytes]]
    ) -> tuple[int, str, str] | None:
        """Status, what is so, and what to do."""
        found: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            found.setdefault(name.lower(), []).append(value)
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            hint = "use the address in endpoint.json, or add the name to `http: {hosts}`"
            return 403, "the host of the request is not a name of this server", hint
        if any(origin.lower() not in self._origins for origin in origins):
            return 403, "requests from other web pages are refused", ""
        if found.get(b"sec-fetch-site", [b"none"])[0] not in OWN_SITES and self._needs_token(path):
            return 403, "requests from other web pages are refused", ""
        if self._needs_token(path) and not self._has_token(found.get(b"authorization", [])):
            hint = "send the token of endpoint.json or of the token file: Bearer"
            return 401, "the token is missing or wrong", hint
        return None

    def _has_token(self, given: list[bytes]) -> bool:
        if len(given) != 1 or not given[0].lower().startswith(SCHEME):
            return False
        sent = given[0][len(SCHEME) :].strip()
        known = [self._token]
        if self._token_file is not None:
            known.append(read_token(self._token_file).encode())
        return sum(hmac.compare_digest(sent, each) for each in known if each) > 0


def hosts_of(name: str, port: int) -> list[str]:
    """Returns the Host headers of a name: with our port, and without one behind a proxy."""
    return [name] if re.search(r":\d+$", name) else [name, f"{name}:{port}"]


def read_token(file: Path) -> str:
    """Returns the token of the file now; empty if it has none, for example while it is replaced."""
    try:
        found = file.read_text(errors="replace").strip()
    except OSError:
        return ""
    return found if len(found) >= TOKEN_LENGTH_MIN else ""


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
