"""A connection whose link goes silent ends by itself, and a login that gets no answer does too."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.connectors.mysql.server.connection import MysqlConnection, connect, in_our_words
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.core_log.foundation import tcp_keepalive
from headwater.core_log.foundation.errors import SourceUnavailable
from tests.cluster.links import can_have_namespaces
from tests.connectors.mysql.conftest import MysqlGuest
from tests.silent_link import SilentLink, options_of, silent_link

needs_namespaces = pytest.mark.skipif(
    not can_have_namespaces(), reason="network namespaces need root"
)


@pytest.fixture
def link(mysql_guest: MysqlGuest) -> Iterator[SilentLink]:
    with silent_link(mysql_guest.server.port) as link:
        yield link


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("IDLE_S", 1),
        ("INTERVAL_S", 1),
        ("COUNT", 2),
        ("UNACKNOWLEDGED_MS_MAX", 2_000),
    ):
        monkeypatch.setattr(tcp_keepalive, name, value)


def connect_through(
    link: SilentLink, guest: MysqlGuest, *, mode: str = "preferred"
) -> MysqlConnection:
    with link.near():
        return connect(
            guest.settings(url=f"mysql://{guest.user}@{link.host}:{link.port}", tls={"mode": mode})
        )


def ask(connection: MysqlConnection, statement: str) -> None:
    with in_our_words("rows cannot be read"):
        connection.rows(statement)


@needs_namespaces
@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_a_statement_that_waits_over_a_silent_link_ends(
    mysql_guest: MysqlGuest, link: SilentLink, quick: None, mode: str
) -> None:
    connection = connect_through(link, mysql_guest, mode=mode)
    answers = ThreadPoolExecutor(1)
    answer = answers.submit(ask, connection, "SELECT SLEEP(3600)")
    sleeping = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User sleep'"
    while mysql_guest.execute(sleeping) == [(0,)]:
        pass
    link.silence()

    with answers, pytest.raises(SourceUnavailable):
        answer.result()


@needs_namespaces
def test_a_statement_that_is_sent_over_a_silent_link_ends(
    mysql_guest: MysqlGuest, link: SilentLink, quick: None
) -> None:
    connection = connect_through(link, mysql_guest)
    link.silence()

    with pytest.raises(SourceUnavailable):
        ask(connection, "SELECT 1")


def test_every_connection_has_the_options(mysql_guest: MysqlGuest) -> None:
    connection = connect(mysql_guest.settings())
    try:
        found = options_of(connection.raw._sock.fileno())
        connection.rows("SELECT 1")
        patience = connection.raw._sock.gettimeout()
    finally:
        connection.close()

    assert (found, patience) == ([30, 10, 3, 60_000], None)


@pytest.mark.slow
def test_a_login_that_gets_no_answer_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        settings = MysqlSettings.model_validate(
            {
                "url": f"mysql://root@127.0.0.1:{port}",
                "tables": ["shop.*"],
                "connect_timeout": "1s",
            }
        )
        with pytest.raises(SourceUnavailable):
            connect(settings)
