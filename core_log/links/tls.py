"""TLS over a non-blocking socket, for `Connection` to use like the socket itself."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.foundation.settings import SecuritySettings, TlsSettings

if TYPE_CHECKING:
    import socket

logger = logging.getLogger(__name__)


SENT_AT_ONCE_MAX = 1 << 18
LOOK_S = 1.0
"""Interval of looks at certificate files."""


class TlsSocket:
    """A TLS socket that raises BlockingIOError like a plain one."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped
        self.fileno = wrapped.fileno
        self.getpeername, self.getsockname = wrapped.getpeername, wrapped.getsockname

    def recv_into(self, room: memoryview) -> int:
        """Returns at most one TLS record; 0 at the end."""
        try:
            return self._wrapped.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def sendmsg(self, frames: Sequence[memoryview]) -> int:
        sent = 0
        try:
            for frame in frames:
                size = self._wrapped.send(frame)
                sent += size
                if size < len(frame):
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            if not sent:
                raise BlockingIOError from None
        return sent

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        """`flags` are a plain socket's, and mean nothing here."""
        try:
            return self._wrapped.send(memoryview(data)[:SENT_AT_ONCE_MAX])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def peer_certificate(self) -> bytes | None:
        """Returns the verified certificate of the other side, in DER; None if it gave none."""
        return self._wrapped.getpeercert(binary_form=True)

    def close(self) -> None:
        """Says so to the other side, as far as that needs no wait."""
        with suppress(OSError, ValueError):
            self._wrapped.unwrap()
        self._wrapped.close()

    def pending(self) -> int:
        """Decrypted bytes that the event loop does not see."""
        return self._wrapped.pending()


class Certificates:
    """A TLS context of files, made again when they change."""

    def __init__(self, build: Callable[[], ssl.SSLContext], paths: Sequence[Path]) -> None:
        """Raises what `build` raises if the files cannot be used."""
        self._build, self._paths = build, paths
        self._stamp = self._found()
        self._context = build()
        self._looked_s = float("-inf")
        self._is_reported = False

    @property
    def context(self) -> ssl.SSLContext:
        """The newest usable context."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._look()
        return self._context

    def _look(self) -> None:
        found = self._found()
        if found == self._stamp:
            return
        try:
            self._context = self._build()
        except ConfigError as error:  # perhaps only one of two files is written yet
            if not self._is_reported:
                logger.warning("the former certificates are kept: %s", error)
            self._is_reported = True
            return
        self._stamp, self._is_reported = found, False
        logger.info("certificates are read again: %s", ", ".join(map(str, self._paths)))

    def _found(self) -> tuple[object, ...]:
        found: list[object] = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                found.append(None)
            else:
                found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def server_context(tls: TlsSettings) -> ssl.SSLContext:
    """Returns the context of a listener. A client's certificate is asked for, not demanded: who has
    none authenticates by SASL. Sessions are not resumed, so that each certificate is checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file, lambda: "")
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (OSError, ValueError) as error:
        raise ConfigError(
            "the certificates of the listener cannot be used",
            hint="security.tls has PEM files: certificate_file, its key_file without a password, "
            "and client_ca_file",
            reason=getattr(error, "reason", None) or getattr(error, "strerror", "") or str(error),
            files=", ".join(str(each) for each in (tls.certificate_file, tls.key_file)),
        ) from None
    return context


async def accept_tls(peer: "socket.socket", context: ssl.SSLContext) -> TlsSocket:
    """Performs the server's side of a handshake; closes the socket if it fails."""
    wrapped = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
    try:
        await _finish_handshake(wrapped)
    except BaseException:
        wrapped.close()
        raise
    return TlsSocket(wrapped)


def context_of(security: SecuritySettings) -> ssl.SSLContext:
    """Returns the TLS context; made once per client."""
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
        if security.certificate_file is not None:
            password = security.key_password.get_secret_value()
            context.load_cert_chain(security.certificate_file, security.key_file, lambda: password)
    except (OSError, ValueError) as error:  # what ssl raises is an OSError too
        named = (security.ca_file, security.certificate_file, security.key_file)
        raise ConfigError(
            "the certificates cannot be used",
            hint="security.ca_file, certificate_file and key_file hold PEM; an encrypted key "
            "needs key_password",
            reason=getattr(error, "reason", None) or getattr(error, "strerror", "") or str(error),
            files=", ".join(str(each) for each in named if isinstance(each, Path)),
        ) from None
    context.check_hostname = security.check_host
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # any certificate in ca_file is trusted
    return context


UNTRUSTED = (
    "the broker's certificate is not trusted",
    "set security.ca_file to the authority that signed it",
)
NAMED_OTHERWISE = (
    "the broker's certificate is for another host",
    "connect to a name that is in the certificate; or let it have this one, or set "
    "security.check_host to false",
)
REFUSALS = {
    9: (
        "the broker's certificate is not valid yet",
        "compare the clocks of both machines; or give the broker a certificate that has begun",
    ),
    10: (
        "the broker's certificate has expired",
        "give the broker a new one: it reads its files again when they change",
    ),
    62: NAMED_OTHERWISE,
    64: NAMED_OTHERWISE,
}
"""The problem and the hint by OpenSSL's code; the certificate may be that of its authority."""


async def shake_hands(wrapped: ssl.SSLSocket, *, host: str) -> TlsSocket:
    """Performs the handshake; raises LogRejected if the broker's certificate is not valid for
    it."""
    try:
        await _finish_handshake(wrapped)
        return TlsSocket(wrapped)
    except ssl.SSLCertVerificationError as error:
        wrapped.close()
        problem, hint = REFUSALS.get(error.verify_code, UNTRUSTED)
        raise LogRejected(problem, hint=hint, host=host, reason=error.verify_message) from None
    except BaseException:
        wrapped.close()
        raise


async def _finish_handshake(wrapped: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            wrapped.do_handshake()
            return
        except ssl.SSLWantReadError:
            await event_at(wrapped, add=loop.add_reader, remove=loop.remove_reader)
        except ssl.SSLWantWriteError:
            await event_at(wrapped, add=loop.add_writer, remove=loop.remove_writer)


async def event_at(
    wrapped: ssl.SSLSocket, *, add: Callable[..., None], remove: Callable[[int], object]
) -> None:
    """Returns once the socket is readable or writable."""
    happened = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not happened.done():
            happened.set_result(None)

    number = wrapped.fileno()
    add(number, wake)
    try:
        await happened
    finally:
        remove(number)
