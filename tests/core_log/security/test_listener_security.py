"""Nothing listens beyond loopback without authentication, unless somebody wrote that it may."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.security.login import ListenerSecurity, security_of
from headwater.core_log.security.principal import CLUSTER, LOCAL, Principal
from headwater.core_log.security.sasl_mechanisms import derive, read_cluster_secret

HERE, ELSEWHERE = "127.0.0.1:9092", "10.0.0.1:9092"
TLS = {"certificate_file": "c.pem", "key_file": "k.pem"}
SECRET: dict[str, Any] = {"cluster_secret": Path("cluster.secret")}


def rules(listen: str, security: dict[str, Any] | None = None, **further: Any) -> ListenerSecurity:
    settings = {"listen": listen, "security": security or {}, **further}
    return security_of(BrokerSettings.model_validate(settings))


def test_nobody_has_to_prove_anything_on_loopback() -> None:
    found = rules(HERE)

    assert not found.authenticates
    assert not found.guards_nodes
    assert found.mechanisms == ()


@pytest.mark.parametrize("security", [{}, {"tls": TLS}, {"super_users": "User:a"}])
@pytest.mark.parametrize("listen", [ELSEWHERE, "0.0.0.0:9092", "[::]:9092", "host:9092"])
def test_a_listener_beyond_loopback_without_authentication_is_refused(
    listen: str, security: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="without authentication"):
        rules(listen, security, **SECRET)


@pytest.mark.parametrize(
    "security",
    [
        {"sasl": "SCRAM-SHA-512"},
        {"tls": TLS | {"client_ca_file": "ca.pem"}},
        {"allow_plaintext": True},
    ],
)
def test_authentication_opens_it_and_so_does_the_written_word(security: dict[str, Any]) -> None:
    found = rules(ELSEWHERE, security)

    assert found.guards_nodes
    assert found.authenticates != ("allow_plaintext" in security)


def test_brokers_beyond_loopback_need_a_secret() -> None:
    with pytest.raises(ConfigError, match="without a secret"):
        rules(ELSEWHERE, {"sasl": "SCRAM-SHA-512"}, join=["10.0.0.2:9092"])

    assert rules(ELSEWHERE, {"sasl": "SCRAM-SHA-512"}, join=["10.0.0.2:9092"], **SECRET)


def test_a_secret_guards_what_brokers_ask_for_and_offers_them_a_mechanism() -> None:
    found = rules(HERE, **SECRET)

    assert found.guards_nodes
    assert not found.authenticates
    assert found.mechanisms == ("SCRAM-SHA-512",)


def test_plain_needs_tls() -> None:
    with pytest.raises(ValidationError, match=r"needs security\.tls"):
        rules(HERE, {"sasl": "PLAIN"})

    assert rules(HERE, {"sasl": "PLAIN", "tls": TLS}).mechanisms == ("PLAIN", "SCRAM-SHA-512")


def test_super_users_are_principals() -> None:
    found = rules(HERE, {"super_users": "User:admin;User:CN=a,O=b"})

    assert found.super_users == {Principal("admin"), Principal("CN=a,O=b"), CLUSTER, LOCAL}
    with pytest.raises(ConfigError, match="not a principal"):
        rules(HERE, {"super_users": "admin"})


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40, b"x" * 40 + b"\n" + b"y" * 9])
def test_a_file_without_a_secret_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="does not hold a cluster secret") as refused:
        read_cluster_secret(content, "cluster.secret")

    assert "short" not in str(refused.value)


def test_a_file_holds_one_secret_or_two() -> None:
    one, two = "x" * 40, "y" * 40

    assert read_cluster_secret(f"{one}\n".encode(), "f") == (one,)
    assert read_cluster_secret(f" {two}\n\n{one}".encode(), "f") == (two, one)
    with pytest.raises(ConfigError):
        read_cluster_secret(f"{one}\n{one}\n{one}".encode(), "f")


def test_secrets_that_are_derived_differ_by_purpose() -> None:
    assert derive("x" * 40, "local") != derive("x" * 40, "decoy") != derive("y" * 40, "decoy")
