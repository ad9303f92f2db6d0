"""A source insists on as much of TLS as its file says, and goes by no other authority."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from headwater.connectors.mysql.server.connection import connect
from headwater.connectors.mysql.settings import MysqlSettings
from headwater.core_log.foundation.database_errors import refusal_of
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import HeadwaterError
from scripts.embedded_mysql import EmbeddedMysql, embedded_mysql
from tests.certificates import Authority
from tests.connectors.mysql.conftest import KINDS, MysqlGuest

NOT_ACCEPTED = r"TLS negotiation failed.*certificate="
KNOWN_BY_CERTIFICATE, BY_PASSWORD = "known:secret", "plain:secret"


@dataclass
class SecuredServer:
    server: EmbeddedMysql
    authority: Authority
    stranger: Authority
    client_file: Path

    def cipher(self, mode: str, *, host: str = "127.0.0.1", user: str = BY_PASSWORD,
               **tls: Any) -> str:  # fmt: skip
        """Of a session that has begun; empty if it is not encrypted."""
        url = f"mysql://{user}@{host}:{self.server.port}"
        settings = MysqlSettings.model_validate(
            {"url": url, "tables": ["shop.*"], "tls": {"mode": mode, **tls}}
        )
        return cipher_of(settings)


def cipher_of(settings: MysqlSettings) -> str:
    connection = connect(settings)
    try:
        [(_, cipher)] = connection.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    finally:
        connection.close()
    return str(cipher)


@pytest.fixture(scope="module", params=KINDS)
def secured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredServer]:
    directory = tmp_path_factory.mktemp("tls")
    authority, stranger = Authority(directory), Authority(directory, "stranger")
    with embedded_mysql(request.param) as server:
        server.kill()
        certificate = authority.issue("server")
        for name, file in {"ca": authority.file, "cert": certificate, "key": certificate}.items():
            readable = Path(copy(file, server.directory / f"{name}.pem"))
            readable.chmod(0o644)  # the server is another user
            server.settings[f"ssl-{name}"] = str(readable)
        server.start()
        server.execute(
            "CREATE USER plain@'%' IDENTIFIED BY 'secret'",
            "CREATE USER known@'%' IDENTIFIED BY 'secret' REQUIRE X509",
        )
        yield SecuredServer(server, authority, stranger, authority.issue("client"))


def test_a_source_without_tls_is_not_encrypted(secured: SecuredServer) -> None:
    assert secured.cipher("disabled") == ""


@pytest.mark.parametrize("mode", ["preferred", "required"])
def test_a_source_that_checks_nothing_is_encrypted_whoever_signed(
    secured: SecuredServer, mode: str
) -> None:
    assert secured.cipher(mode)
    assert secured.cipher(mode, host="localhost")


@pytest.mark.parametrize("mode", ["verify_ca", "verify_identity"])
def test_a_source_that_checks_the_server_goes_by_its_authority(
    secured: SecuredServer, mode: str
) -> None:
    assert secured.cipher(mode, ca_file=secured.authority.file)
    with pytest.raises(HeadwaterError, match=NOT_ACCEPTED):
        secured.cipher(mode, ca_file=secured.stranger.file)
    with pytest.raises(HeadwaterError, match=NOT_ACCEPTED):
        secured.cipher(mode)  # by the authorities of the machine


def test_a_certificate_of_another_name_is_refused_by_who_checks_the_name(
    secured: SecuredServer,
) -> None:
    """The server's is for 127.0.0.1."""
    assert secured.cipher("verify_ca", host="localhost", ca_file=secured.authority.file)
    with pytest.raises(HeadwaterError, match=NOT_ACCEPTED):
        secured.cipher("verify_identity", host="localhost", ca_file=secured.authority.file)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["name", "authority"])
def test_sqlalchemy_names_a_certificate_that_is_not_accepted(
    secured: SecuredServer, host: str, tmp_path: Path
) -> None:
    file = (secured.authority if host == "localhost" else secured.stranger).file
    options = f"ssl_ca={file}&ssl_verify_identity=true"
    url = f"mysql://{BY_PASSWORD}@{host}:{secured.server.port}/?{options}"
    with pytest.raises(Exception) as failed:
        engine_at(url, directory=tmp_path, timeout_ms=10_000).connect()

    refused = refusal_of(failed.value)
    assert refused is not None
    assert (refused.reason, refused.passes) == ("TLS negotiation failed", False)


def test_a_server_that_asks_for_a_certificate_gets_the_one_of_the_file(
    secured: SecuredServer,
) -> None:
    assert secured.cipher(
        "required", user=KNOWN_BY_CERTIFICATE, certificate_file=secured.client_file
    )
    with pytest.raises(HeadwaterError, match="access denied"):
        secured.cipher("required", user=KNOWN_BY_CERTIFICATE)


def test_a_server_without_tls_is_refused_unless_tls_is_only_preferred(
    mysql_guest: MysqlGuest,
) -> None:
    if not mysql_guest.server.is_mariadb:
        pytest.skip("a server of MySQL makes itself a certificate")
    assert cipher_of(mysql_guest.settings(tls={"mode": "preferred"})) == ""
    for mode in ("required", "verify_ca", "verify_identity"):
        with pytest.raises(HeadwaterError, match="TLS negotiation failed"):
            cipher_of(mysql_guest.settings(tls={"mode": mode}))
