"""A connection whose link goes silent ends by itself, whether it waits for rows or has sent a
statement."""

import asyncio
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext

import psycopg
import pytest
import sqlalchemy as sa

from headwater.connectors.postgres.server.connection import PgConnection, connect
from headwater.connectors.postgres.snapshot.copy import taken_over
from headwater.connectors.postgres.wal.kernels import chosen_kernels
from headwater.connectors.postgres.wal.transport import open_line
from headwater.core_log.foundation.errors import SourceUnavailable
from tests.cluster.links import can_have_namespaces
from tests.connectors.postgres.server.test_connection import settings_of
from tests.databases import Guest
from tests.silent_link import SilentLink, options_of, silent_link

QUICK = "keepalives_idle=1&keepalives_interval=1&keepalives_count=2&tcp_user_timeout=2000"
LOOK_S = 0.01
needs_namespaces = pytest.mark.skipif(
    not can_have_namespaces(), reason="network namespaces need root"
)


@pytest.fixture
def link(guest: Guest) -> Iterator[SilentLink]:
    port = sa.make_url(guest.url).port
    assert port is not None, "the server listens at a port"
    with silent_link(port) as link:
        yield link


def through(link: SilentLink, guest: Guest, options: str = QUICK) -> str:
    url = sa.make_url(guest.url).set(host=link.host)
    return f"{url.render_as_string(hide_password=False)}?{options}"


@asynccontextmanager
async def connected(
    url: str, link: SilentLink | None = None, *, replication: bool = False
) -> AsyncIterator[PgConnection]:
    """Closed in the end, whatever has become of it."""
    with link.near() if link is not None else nullcontext():
        connection = await connect(settings_of(url), replication=replication)
    try:
        yield connection
    finally:
        await connection.close()


def until_it_sleeps(guest: Guest) -> None:
    while not guest.rows("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'"):
        time.sleep(LOOK_S)


@needs_namespaces
async def test_a_statement_that_waits_over_a_silent_link_ends(
    guest: Guest, link: SilentLink
) -> None:
    async with connected(through(link, guest), link) as connection:
        answer = asyncio.ensure_future(connection.execute("SELECT pg_sleep(3600)"))
        await asyncio.to_thread(until_it_sleeps, guest)
        link.silence()

        with pytest.raises(psycopg.OperationalError):
            await answer


@needs_namespaces
async def test_a_statement_that_is_sent_over_a_silent_link_ends(
    guest: Guest, link: SilentLink
) -> None:
    async with connected(through(link, guest), link) as connection:
        link.silence()

        with pytest.raises(psycopg.OperationalError):
            await connection.execute("SELECT 1")


@needs_namespaces
@pytest.mark.parametrize("replication", [False, True])
async def test_every_connection_has_the_options_unless_its_address_says_otherwise(
    guest: Guest, link: SilentLink, replication: bool
) -> None:
    found = []
    for options in ("", "tcp_user_timeout=5000"):
        url = through(link, guest, options)
        async with connected(url, link, replication=replication) as connection:
            found.append(options_of(connection.fileno()))

    assert found == [[30, 10, 3, 60_000], [30, 10, 3, 5_000]]


def reset(far: socket.socket) -> None:
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    far.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield near, far


def test_a_copy_whose_connection_breaks_before_its_first_row_may_be_tried_again(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    near, far = pair
    reset(far)

    with pytest.raises(SourceUnavailable):
        taken_over(near.fileno(), chosen_kernels())


async def test_a_stream_whose_connection_breaks_before_it_begins_may_be_tried_again(
    guest: Guest, pair: tuple[socket.socket, socket.socket]
) -> None:
    near, far = pair
    far.setblocking(False)
    async with connected(guest.url, replication=True) as connection:
        os.dup2(near.fileno(), connection.fileno())
        opening = asyncio.ensure_future(open_line(connection, b"START_REPLICATION"))
        await asyncio.get_running_loop().sock_recv(far, 1)
        reset(far)

        with pytest.raises(SourceUnavailable):
            await opening
