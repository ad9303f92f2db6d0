"""How far a connection is on its way to a principal, and which requests it may make meanwhile."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headwater.core_log.foundation.errors import DecodeError

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
REQUEST_BYTES_MAX = 64 << 10
"""Largest request of a client that is not known yet. Kafka allows 512 KB, for the tickets of
Kerberos; a message of SCRAM or PLAIN has at most a few hundred bytes."""
RENEWAL_MS_MIN = 1_000


@dataclass(slots=True)
class LoginSession:
    """A login that ends, so that its client must authenticate again (KIP-368)."""

    mechanism: str
    end_ms: int
    renewed_ms: int | None = None
    """When it last began to authenticate again."""

    def may_renew(self, now_ms: int) -> bool:
        """Whether the client may authenticate again now; once a second, as in Kafka."""
        return self.renewed_ms is None or now_ms - self.renewed_ms >= RENEWAL_MS_MIN


class Exchange(Protocol):
    """The server's side of one mechanism."""

    user: str
    is_done: bool
    is_slow: bool
    """Whether a step takes milliseconds of a processor."""

    def step(self, message: bytes) -> bytes:
        """Returns the answer to a client's message; raises `AuthenticationFailed`."""
        ...


class Stage(Enum):
    """The next possible request of a client, as in Kafka."""

    BEGUN = frozenset({API_VERSIONS, SASL_HANDSHAKE})
    AGREED = frozenset({SASL_HANDSHAKE})
    PROVING = frozenset({SASL_AUTHENTICATE})


class Login:
    """The login of one connection, until it has a principal."""

    def __init__(self) -> None:
        self.stage = Stage.BEGUN
        self.mechanism = ""
        self.exchange: Exchange | None = None

    def expect(self, api_key: int) -> None:
        """Raises, so that the connection is closed as in Kafka, for a request out of turn."""
        if api_key not in self.stage.value:
            raise DecodeError("request is not allowed before authentication", api_key=api_key)

    def on_versions(self) -> None:
        if self.stage is Stage.BEGUN:
            self.stage = Stage.AGREED

    def begin(self, mechanism: str, exchange: Exchange) -> None:
        self.mechanism, self.exchange, self.stage = mechanism, exchange, Stage.PROVING
