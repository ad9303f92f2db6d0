"""The demands of a listener on its clients."""

from dataclasses import dataclass

from headwater.core_log.foundation.endpoint import is_loopback, parse_address
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.security.principal import CLUSTER, LOCAL, Principal, parse_principal

BETWEEN_NODES = "SCRAM-SHA-512"
"""The mechanism of other brokers, and of our own commands."""


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
