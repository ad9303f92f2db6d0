"""TCP options by which a connection to a database notices that its link has gone silent: packets
vanish, and no side is told."""

import socket
from collections.abc import Iterable
from typing import Any

IDLE_S, INTERVAL_S, COUNT = 30, 10, 3
"""A connection that only waits is probed after `IDLE_S`, and ends after `COUNT` probes without an
answer. The kernel alone waits two hours."""
UNACKNOWLEDGED_MS_MAX = 60_000
"""A connection that has sent something ends if the peer's kernel does not acknowledge it. No probes
are sent meanwhile, and the kernel alone sends again for a quarter of an hour."""

LOGIN_LIMITS = ("read_timeout", "write_timeout")
"""PyMySQL's names for the seconds that it waits for a server to which it is connected."""


def libpq_options() -> dict[str, int]:
    """Returns libpq's parameters of a connection."""
    return {
        "keepalives_idle": IDLE_S,
        "keepalives_interval": INTERVAL_S,
        "keepalives_count": COUNT,
        "tcp_user_timeout": UNACKNOWLEDGED_MS_MAX,
    }


def notice_silence(connection: socket.socket) -> None:
    """Sets the options on a connected socket, as far as the system has them."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", INTERVAL_S),
        ("TCP_KEEPCNT", COUNT),
        ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS_MAX),
    ):
        if (option := getattr(socket, name, None)) is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def begin_session(connection: Any, *, lifted: Iterable[str] = LOGIN_LIMITS) -> None:
    """Lifts the time limits of a login from a connection of PyMySQL, because a statement may last
    for hours; only silence ends it."""
    for limit in lifted:
        setattr(connection, f"_{limit}", None)
    notice_silence(connection._sock)
