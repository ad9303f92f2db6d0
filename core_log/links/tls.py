"""TLS over a non-blocking socket, for `Connection` to use like the socket itself."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.foundation.settings import SecuritySettings


class TlsSocket:
    """A TLS socket that raises BlockingIOError like a plain one."""

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped
        self.fileno, self.close = wrapped.fileno, wrapped.close

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

    def pending(self) -> int:
        """Decrypted bytes that the event loop does not see."""
        return self._wrapped.pending()


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
    return context


async def shake_hands(wrapped: ssl.SSLSocket, *, host: str) -> TlsSocket:
    """Performs the handshake; raises LogRejected if the broker's certificate is not valid for
    it."""
    loop = asyncio.get_running_loop()
    try:
        while True:
            try:
                wrapped.do_handshake()
                return TlsSocket(wrapped)
            except ssl.SSLWantReadError:
                await event_at(wrapped, add=loop.add_reader, remove=loop.remove_reader)
            except ssl.SSLWantWriteError:
                await event_at(wrapped, add=loop.add_writer, remove=loop.remove_writer)
    except ssl.SSLCertVerificationError as error:
        wrapped.close()
        raise LogRejected(
            "the broker's certificate is not trusted",
            hint="set security.ca_file to the authority that signed it",
            host=host,
            reason=error.verify_message,
        ) from None
    except BaseException:
        wrapped.close()
        raise


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
