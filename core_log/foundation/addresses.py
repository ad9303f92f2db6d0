"""Addresses as a pipeline file has them: refused where no server can be meant, never shown."""

from urllib.parse import urlsplit

PORT_MAX = 65_535
NOT_SET = "not-set-in-this-environment"
"""In the place of a variable that a command does without, and so of any address."""


def check_host_ports(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Raises `ValueError` unless each is a host and a port."""
    for address in addresses:
        if NOT_SET in address:
            continue
        if "://" in address:
            raise ValueError("a broker's address has no scheme: take off what ends with ://")
        host, _, port = address.rpartition(":")
        if not _is_host(host) or not _is_port(port):
            raise ValueError("this is no address of a broker: HOST:PORT, such as kafka-1:9092")
    return addresses


def check_http_address(address: str) -> str:
    """Raises `ValueError` unless it is empty, or an address of HTTP."""
    if not address or NOT_SET in address:
        return address
    wrong = ValueError("this is no address of a server: http://HOST:PORT or https://HOST")
    try:
        parts = urlsplit(address)
        port = parts.port  # of one that is none it raises
    except ValueError:
        raise wrong from None
    is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0
    if not is_whole or " " in address:
        raise wrong
    return address


def _is_host(host: str) -> bool:
    if host.startswith("["):
        return host.endswith("]") and len(host) > len("[]")
    return bool(host) and not set(host) & set(":/@ ,")


def _is_port(port: str) -> bool:
    return port.isdecimal() and 0 < int(port) <= PORT_MAX
