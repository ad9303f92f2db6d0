"""Loopback ports that stay free for whoever asked, while what listens on them comes and goes."""

import socket
from contextlib import suppress
from random import SystemRandom

FIRST, END = 12_000, 32_000
"""Below what Linux hands out by itself: no client on its way somewhere takes the port of a server
that is down for a moment, nor connects to itself while it tries to reach that server."""


def free_port() -> int:
    """By chance, so that tests beside each other do not ask for the same one."""
    while True:
        port = SystemRandom().randrange(FIRST, END)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def free_ports(wanted: int) -> list[int]:
    """All of them different."""
    found = set[int]()
    while len(found) < wanted:
        found.add(free_port())
    return list(found)
