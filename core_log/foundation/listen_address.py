"""Where a broker may listen."""

import ipaddress

from headwater.core_log.foundation.errors import ConfigError


def parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError("listen address is not HOST:PORT", hint="try 127.0.0.1:9092", got=address)
    return host, int(port)


def refuse_unsafe(host: str) -> None:
    """Nothing listens beyond loopback without authentication, and there is none yet."""
    try:
        is_loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise ConfigError(
            "the log listens on loopback only, because it has no authentication yet",
            hint="use --listen 127.0.0.1:9092, and an SSH tunnel from other machines",
            host=host,
        )
