"""A fixed HTTP address: bound before anything else begins, and guarded by a token file."""

import secrets
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core_log.foundation.endpoint import parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.file.http_settings import HttpSettings
from headwater.pipelines.watching.http_guard import (
    TOKEN_LENGTH_MIN,
    App,
    Guard,
    NeedsToken,
    read_token,
)

if TYPE_CHECKING:
    import uvicorn

PRIVATE = 0o600


class HttpListener:
    """Raises `ConfigError` where it cannot listen; whoever connects meanwhile is answered once it
    serves."""

    def __init__(self, settings: HttpSettings) -> None:
        assert settings.listen, "there is a fixed address"
        self._settings = settings
        self._host, port = parse_address(settings.listen)
        self.is_encrypted = settings.certificate_file is not None
        if settings.token_file is not None:
            make_token(settings.token_file)
        if self.is_encrypted:
            check_certificate(settings)
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self._host, port))
            self._socket.listen()
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                "the HTTP address cannot be listened on",
                hint="choose another one: --http 127.0.0.1:0 takes a free port",
                address=settings.listen,
                reason=error.strerror,
            ) from error
        self.port = int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None

    @property
    def address(self) -> str:
        """SCHEME://HOST:PORT."""
        scheme = "https" if self.is_encrypted else "http"
        return f"{scheme}://{_bracketed(self._host)}:{self.port}"

    @property
    def token(self) -> str:
        """The token of the file; empty without one."""
        file = self._settings.token_file
        return "" if file is None else read_token(file)

    def guard(self, app: App, *, token: str, needs_token: NeedsToken = lambda _: True) -> Guard:
        """`token` is let in beside that of the file."""
        return Guard(
            app,
            token=token,
            port=self.port,
            needs_token=needs_token,
            names=(_bracketed(self._host), *self._settings.hosts),
            token_file=self._settings.token_file,
            is_encrypted=self.is_encrypted,
        )

    def make_server(self, app: App) -> "uvicorn.Server":
        """Loads the server, which takes a moment: in a thread."""
        from headwater.pipelines.watching.http_api import new_server

        settings = self._settings
        return new_server(app, certificate=settings.certificate_file, key=settings.key_file)

    async def start(self, server: "uvicorn.Server") -> None:
        await server.startup([self._socket])
        self._server = server

    async def stop(self) -> None:
        """Ends what is still open after a moment."""
        if self._server is not None:
            await self._server.shutdown([self._socket])
            self._server = None
        self._socket.close()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def make_token(file: Path) -> None:
    """Writes a new token if the file does not exist; raises if it holds none that can be used."""
    try:
        file.touch(PRIVATE, exist_ok=False)
        file.write_text(secrets.token_urlsafe(24) + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable_token(file, str(error.strerror)) from error
    if not read_token(file):
        raise _unusable_token(file, f"it has no token of {TOKEN_LENGTH_MIN} characters or more")


def _unusable_token(file: Path, reason: str) -> ConfigError:
    return ConfigError(
        "the token file cannot be used",
        hint=f"openssl rand -hex 24 > {file} && chmod 600 {file}",
        file=str(file),
        reason=reason,
    )


def check_certificate(settings: HttpSettings) -> None:
    """Raises if the certificate and its key are not a pair that can be read."""
    assert settings.certificate_file is not None, "only called with a certificate"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            "the certificate cannot be used",
            hint="both files must be PEM, and the key must be the certificate's",
            certificate_file=str(settings.certificate_file),
            key_file=str(settings.key_file),
            reason=str(error.strerror or error),
        ) from None
