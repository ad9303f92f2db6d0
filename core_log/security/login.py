"""The demands of a listener on its clients, and the way of a connection to a principal."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headwater.core_log.foundation.endpoint import is_loopback, parse_address
from headwater.core_log.foundation.errors import ConfigError, DecodeError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.security.principal import CLUSTER, LOCAL, Principal, parse_principal

BETWEEN_NODES = "SCRAM-SHA-512"
"""The mechanism of other brokers, and of our own commands."""
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
REQUEST_BYTES_MAX = 64 << 10
"""Largest request of a client that is not known yet. Kafka allows 512 KB, for the tickets of
Kerberos; a message of SCRAM or PLAIN has at most a few hundred bytes."""
RENEWAL_MS_MIN = 1_000


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The rules of one listener, from its settings."""

    authenticates: bool
    """Whether every client must prove who it is."""
    guards_nodes: bool
    """Whether what only brokers may ask for is refused to everybody else."""
    mechanisms: tuple[str, ...]
    """SASL mechanisms that are offered; those of clients are in the settings."""
    super_users: frozenset[Principal]
    """Principals that may do everything."""


def security_of(settings: BrokerSettings) -> ListenerSecurity:
    """Raises `ConfigError` if others could reach the log without proving anything."""
    wanted, host = settings.security, parse_address(settings.listen)[0]
    is_here, has_secret = is_loopback(host), settings.cluster_secret is not None
    if not (is_here or wanted.authenticates or wanted.allow_plaintext):
        raise ConfigError(
            "the log does not listen beyond loopback without authentication",
            hint="set security.sasl to SCRAM-SHA-512, or ask clients for certificates; or, on a "
            "network that you trust, set security.allow_plaintext to true",
            host=host,
        )
    if not is_here and settings.join and not has_secret:
        raise ConfigError(
            "brokers do not know each other beyond loopback without a secret",
            hint="`headwater cluster secret > cluster.secret`, and that file on each of them: "
            "--cluster-secret, or log.cluster.secret",
            host=host,
        )
    offers = wanted.authenticates or has_secret
    extra = (BETWEEN_NODES,) if offers and BETWEEN_NODES not in wanted.sasl else ()
    try:
        named = frozenset(map(parse_principal, wanted.super_users))
    except ValueError as error:
        raise ConfigError("a super user is not a principal", reason=str(error)) from None
    return ListenerSecurity(
        authenticates=wanted.authenticates,
        guards_nodes=has_secret or wanted.authenticates or not is_here,
        mechanisms=(*wanted.sasl, *extra),
        super_users=named | {CLUSTER, LOCAL},
    )


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
