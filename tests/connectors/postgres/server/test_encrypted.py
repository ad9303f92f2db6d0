"""Over TLS, with a password, rows and changes are the same; whoever is not who the address says is
refused in words."""

import logging
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.database_errors import refusal_of
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import SourceRejected
from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres
from tests.connectors.postgres.source_session import events_of, story
from tests.databases import Guest, guest_in

pytestmark = pytest.mark.integration

PASSWORD = "pass geheim"
ONLY_ENCRYPTED = "hostssl all sealed_guest 127.0.0.1/32 scram-sha-256\n"
TRUSTED = "host all headwater 127.0.0.1/32 trust\n"
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text)",
    "INSERT INTO orders SELECT g, repeat('it was here ', 20) FROM generate_series(1, 5000) g",
)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A server that lets a role in over TLS only; its certificate is one of `localhost`."""

    server: EmbeddedPostgres
    certificate: Path
    other: Path
    """A certificate that has nothing to do with it."""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sealed]:
    directory = tmp_path_factory.mktemp("certificates")
    for name in ("server", "other"):
        certify(directory / name)
    with embedded_postgres(settings={"password_encryption": "scram-sha-256"}) as server:
        (server.data / "pg_hba.conf").write_text(ONLY_ENCRYPTED + TRUSTED)
        for suffix in ("crt", "key"):
            placed = server.data / f"server.{suffix}"
            shutil.copy(directory / f"server.{suffix}", placed)
            placed.chmod(0o600)
            if os.getuid() == 0:
                owner = pwd.getpwnam("nobody")
                os.chown(placed, owner.pw_uid, owner.pw_gid)
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute(
                f"CREATE ROLE sealed_guest LOGIN REPLICATION PASSWORD '{PASSWORD}'".encode()
            )
            connection.execute("GRANT pg_read_all_data TO sealed_guest")
            connection.execute("SELECT pg_reload_conf()")
        yield Sealed(server, directory / "server.crt", directory / "other.crt")


def certify(place: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", f"{place}.key", "-out", f"{place}.crt"],
        check=True,
        capture_output=True,
    )  # fmt: skip


@pytest.fixture
def guest(sealed: Sealed) -> Iterator[Guest]:
    with guest_in(sealed.server.address, "sealed") as guest:
        yield replace(guest, url=address_of(sealed, verified(sealed)))


def address_of(sealed: Sealed, choices: str, *, host: str = "localhost") -> str:
    password = PASSWORD.replace(" ", "%20")
    return f"postgresql://sealed_guest:{password}@{host}:{sealed.server.port}/sealed?{choices}"


def verified(sealed: Sealed) -> str:
    return f"sslmode=verify-full&sslrootcert={sealed.certificate}"


@pytest.mark.parametrize("mode", ["require", "verify-full"])
async def test_rows_and_changes_come_over_tls_and_the_plainer_way_is_said(
    guest: Guest, sealed: Sealed, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    choices = "sslmode=require" if mode == "require" else verified(sealed)
    guest = replace(guest, url=address_of(sealed, choices))
    guest.execute(*TABLES)
    guest.publish("orders")

    with caplog.at_level(logging.INFO):
        async with story(guest) as told:
            found = await told.tell(
                "UPDATE orders SET note = 'changed' WHERE id <= 1000",
                "DELETE FROM orders WHERE id = 3",
            )
            shown = guest.rows(
                "SELECT DISTINCT s.ssl, a.backend_type = 'walsender' FROM pg_stat_ssl s"
                " JOIN pg_stat_activity a USING (pid) WHERE a.usename = 'sealed_guest'"
            )

    rows = [event for changes in told.tables for event in events_of(changes)]
    assert [event.operation for event in rows].count("r") == 5_000
    changes = [event.operation for event in found if event.operation != "r"]
    assert changes == ["u"] * 1_000 + ["d"]
    assert all(is_encrypted for is_encrypted, _ in shown)
    assert any(is_stream for _, is_stream in shown)
    assert "the stream is encrypted" in caplog.text


@pytest.mark.parametrize(
    ("choices", "host", "hint"),
    [
        ("sslmode=verify-full&sslrootcert={other}", "localhost", "sslmode or sslrootcert"),
        ("sslmode=verify-full&sslrootcert={own}", "127.0.0.1", "sslmode or sslrootcert"),
        ("sslmode=verify-ca&sslrootcert=/nowhere.crt", "localhost", "sslmode or sslrootcert"),
        ("sslmode=disable", "localhost", "sslmode=require"),
    ],
    ids=["another authority", "another name", "no file", "in clear"],
)
async def test_a_server_that_cannot_be_verified_is_refused_with_the_correction(
    guest: Guest, sealed: Sealed, choices: str, host: str, hint: str
) -> None:
    choices = choices.format(own=sealed.certificate, other=sealed.other)
    url = address_of(sealed, choices, host=host)

    with pytest.raises(SourceRejected, match="refuses the connection") as refused:
        await connect(PostgresSettings(url=SecretStr(url), tables=("public.*",)))

    assert hint in refused.value.hint
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["authority", "name"])
def test_sqlalchemy_names_a_certificate_that_is_not_accepted(
    guest: Guest, sealed: Sealed, host: str, tmp_path: Path
) -> None:
    file = sealed.other if host == "localhost" else sealed.certificate
    url = address_of(sealed, f"sslmode=verify-full&sslrootcert={file}", host=host)
    with pytest.raises(Exception) as failed:
        engine_at(url, directory=tmp_path, timeout_ms=10_000).connect()

    refused = refusal_of(failed.value)
    assert refused is not None
    assert (refused.reason, refused.passes) == ("TLS negotiation failed", False)


async def test_a_wrong_password_is_refused(guest: Guest, sealed: Sealed) -> None:
    url = guest.url.replace("pass%20geheim", "geheim")

    with pytest.raises(SourceRejected) as refused:
        await connect(PostgresSettings(url=SecretStr(url), tables=("public.*",)))

    assert "correct user or password" in refused.value.hint
