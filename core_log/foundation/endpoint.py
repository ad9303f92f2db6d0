"""`endpoint.json`: tells other processes how to reach the one process that owns a data
directory."""

import ipaddress
import json
from dataclasses import asdict, dataclass, field

from headwater.core_log.foundation.errors import ConfigError, DecodeError

FILE_NAME = "endpoint.json"
VIA_HEADER = "headwater-via"
"""Names who asks the process, for its audit."""
MODE = 0o600  # the token in it is a secret of the user who runs the broker


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses of the owner of a data directory. A stale file is possible: its pid or port is
    gone."""

    pid: int
    kafka: str
    """HOST:PORT of the Kafka listener."""
    http: str | None = None
    """HOST:PORT of the console; empty if there is none or it has not started yet."""
    token: str | None = field(default=None, repr=False)
    """Secret that the console expects in every request."""
    control: str | None = None
    """HOST:PORT of the HTTP API of a broker that runs no pipelines; None without one."""
    command: str | None = None
    """Name of the command that runs the log only until it ends; None for a lasting process."""
    secret: str | None = field(default=None, repr=False)
    """Password of our own commands; None where clients need not authenticate."""
    ca_file: str | None = None
    """File with the authorities of the listener's certificate; None without TLS."""


def encode_endpoint(endpoint: Endpoint) -> bytes:
    return json.dumps(asdict(endpoint), indent=2).encode() + b"\n"


def decode_endpoint(content: bytes) -> Endpoint:
    """Reads the file. Fields of a newer version are ignored; a missing field is an error."""
    try:
        found = json.loads(content)
        return Endpoint(
            pid=int(found["pid"]),
            kafka=str(found["kafka"]),
            http=found.get("http"),
            token=found.get("token"),
            control=found.get("control"),
            command=found.get("command"),
            secret=found.get("secret"),
            ca_file=found.get("ca_file"),
        )
    except (ValueError, KeyError, TypeError) as error:
        problem = f"{FILE_NAME} is invalid"
        raise DecodeError(problem, found=type(error).__name__) from None


def parse_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError("listen address is not HOST:PORT", hint="try 127.0.0.1:9092", got=address)
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
