"""Addresses of databases that let nobody in, and what is to be said of each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
import sqlalchemy as sa

from scripts.free_port import free_port
from tests.certificates import Authority

SECRET = "canary-secret"
NO_TLS = "TLS negotiation failed"


class Refused(NamedTuple):
    address: str
    reason: str
    passes: bool
    place: dict[str, object]


def closed(kind: str) -> Refused:
    port = free_port()
    address = f"{kind}://u:{SECRET}@127.0.0.1:{port}/shop"
    return Refused(address, "connection refused", True, {"host": "127.0.0.1", "port": port})


def unknown_host(kind: str) -> Refused:
    place: dict[str, object] = {"host": "nowhere.invalid", "port": PORTS[kind]}
    return Refused(f"{kind}://u:{SECRET}@nowhere.invalid/shop", "unknown host", True, place)


def unknown_database(server: str) -> Refused:
    url = sa.make_url(server).set(database="no_such_shop")
    return Refused(_text(url), "unknown database", False, _place(url))


def plain_server(server: str, directory: Path) -> Refused:
    """The tests' servers have no certificate."""
    authority = str(Authority(directory).file)
    options = (
        {"sslmode": "require"}
        if server.startswith("postgresql")
        else {"ssl_ca": authority, "ssl_disabled": ""}
    )
    url = sa.make_url(server).update_query_dict(options)
    return Refused(_text(url), NO_TLS, False, _place(url))


@contextmanager
def wrong_password(server: str) -> Iterator[Refused]:
    """The tests' PostgreSQL trusts everybody, but for one whom it asks."""
    url = sa.make_url(server).set(username="headwater_asked", password=SECRET)
    refused = Refused(_text(url), "authentication failed", False, _place(url))
    if not server.startswith("postgresql"):
        yield refused
        return
    with psycopg.connect(server, autocommit=True) as owner:
        owner.execute("CREATE ROLE headwater_asked LOGIN PASSWORD 'another'")
        found = owner.execute("SELECT setting FROM pg_settings WHERE name = 'hba_file'").fetchone()
        assert found is not None
        rules = Path(str(found[0]))
        before = rules.read_text()
        rules.write_text(f"host all headwater_asked all scram-sha-256\n{before}")
        owner.execute("SELECT pg_reload_conf()")
        while _lets_in(refused.address):
            continue
        try:
            yield refused
        finally:
            rules.write_text(before)
            owner.execute("SELECT pg_reload_conf()")
            owner.execute("DROP ROLE headwater_asked")


class RefusedLogins:
    """What a source or a sink says of them: a subclass looks."""

    async def check(self, refused: Refused, directory: Path) -> None:
        raise NotImplementedError

    @pytest.mark.parametrize("kind", ["postgresql", "mysql"])
    async def test_a_server_that_is_not_there_is_named_with_host_port_and_reason(
        self, kind: str, tmp_path: Path
    ) -> None:
        for refused in (closed(kind), unknown_host(kind)):
            await self.check(refused, tmp_path)

    @pytest.mark.parametrize("kind", ["postgres", "mariadb"])
    async def test_a_server_that_lets_nobody_in_is_named_with_the_reason(
        self, kind: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        server: str = request.getfixturevalue(kind)

        await self.check(unknown_database(server), tmp_path)
        await self.check(plain_server(server, tmp_path), tmp_path)
        with wrong_password(server) as refused:
            await self.check(refused, tmp_path)


PORTS = {"postgresql": 5432, "mysql": 3306}


def _lets_in(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


def _text(url: sa.URL) -> str:
    return url.render_as_string(hide_password=False)


def _place(url: sa.URL) -> dict[str, object]:
    return {"host": url.host, "port": url.port}
