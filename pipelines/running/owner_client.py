"""Asks the process that runs pipelines, over the HTTP API whose address is in `endpoint.json`."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from headwater.core_log.foundation.endpoint import VIA_HEADER
from headwater.core_log.foundation.errors import (
    ConfigError,
    DecodeError,
    HeadwaterError,
    LogUnavailable,
)

WAIT_S_MAX = 10.0
ANSWER_BYTES_MAX = 64 << 20
HINT = "the process may just be stopping; look at its log"


class LockHolderRefused(HeadwaterError):
    """The process that runs the pipelines answered that it will not."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Blocks while it waits; in a coroutine call it in a thread."""

    address: str
    """HOST:PORT."""
    token: str

    def status(self) -> Mapping[str, Any]:
        return self.ask("GET", "/status")

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, via: str = ""
    ) -> Mapping[str, Any]:
        """Returns the answer; raises `LockHolderRefused` with the other side's own words. `via`:
        who asks, for the audit."""
        with closing(self._connection()) as connection:
            response = self._send(connection, method, path, body, via=via)
            content = _read(response)
            if response.status >= 400:
                raise _refusal(response.status, content)
            return content

    def reports(self, pipeline: str | None = None) -> Iterator[Mapping[str, Any]]:
        """Reports as they come, as JSON, until the other side ends."""
        path = "/events" + (f"?{urlencode({'pipeline': pipeline})}" if pipeline else "")
        with closing(self._connection()) as connection:
            response = self._send(connection, "GET", path, None)
            if response.status >= 400:
                raise _refusal(response.status, _read(response))
            while line := response.readline():
                if line.strip():
                    yield json.loads(line)

    def _connection(self) -> http.client.HTTPConnection:
        host, _, port = self.address.rpartition(":")
        return http.client.HTTPConnection(host, int(port), timeout=WAIT_S_MAX)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        *,
        via: str = "",
    ) -> http.client.HTTPResponse:
        try:
            headers = {"Authorization": f"Bearer {self.token}"}
            headers |= {VIA_HEADER: via} if via else {}
            connection.request(method, path, body, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise LogUnavailable(
                "the process that runs the pipelines does not answer",
                hint=HINT,
                address=self.address,
                failure=type(error).__name__,
            ) from None


def _read(response: http.client.HTTPResponse) -> Mapping[str, Any]:
    try:
        text = response.read(ANSWER_BYTES_MAX)
        is_cut = not text or (bool(response.length) and len(text) < ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        is_cut = True
    if is_cut:  # such as by a kill
        raise LogUnavailable("the answer ended too early", hint=HINT) from None
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DecodeError("the process at this address is not Headwater", status=response.status)
    return content


def _refusal(status: int, content: Mapping[str, Any]) -> HeadwaterError:
    error = content.get("error") or {}
    kind = LogUnavailable if status == 503 else ConfigError if status < 500 else LockHolderRefused
    return kind(
        str(error.get("problem", "the request was refused")),
        hint=str(error.get("hint") or ""),
        **{str(name): value for name, value in (error.get("facts") or {}).items()},
    )
