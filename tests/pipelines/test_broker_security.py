"""Security of a broker is set by dotted names, and its secrets are fit for use."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.security.sasl_mechanisms import read_cluster_secret
from headwater.pipelines.cli import cli
from headwater.pipelines.commands.broker import broker_settings
from headwater.pipelines.commands.cluster import ask_password

DATA, LISTEN = Path("d"), "127.0.0.1:0"


def test_names_within_each_other_reach_their_setting() -> None:
    found = broker_settings(
        DATA,
        LISTEN,
        (
            "security.sasl=SCRAM-SHA-512, PLAIN",
            "security.tls.certificate_file=c.pem",
            "security.tls.key_file=k.pem",
            "security.super_users=User:a;User:CN=b,O=c",
        ),
        advertise="host:9092",
    )

    assert found.security.sasl == ["SCRAM-SHA-512", "PLAIN"]
    assert found.security.tls is not None
    assert found.security.tls.key_file == Path("k.pem")
    assert found.security.super_users == ["User:a", "User:CN=b,O=c"]
    assert found.advertise == "host:9092"


@pytest.mark.parametrize(
    "setting",
    [
        "security.sasl=GSSAPI",
        "security.tsl.key_file=k.pem",
        "security.tls.key_file=k.pem",
        "security.sasl=PLAIN",
        "security.=x",
    ],
)
def test_a_mistake_is_a_configuration_error(setting: str) -> None:
    with pytest.raises(ConfigError):
        broker_settings(DATA, LISTEN, (setting,))


def test_a_setting_is_not_a_group_as_well() -> None:
    with pytest.raises(ConfigError, match="has no parts"):
        broker_settings(DATA, LISTEN, ("security.sasl=PLAIN", "security.sasl.mechanism=x"))


def test_each_secret_is_another_one_and_fit_for_a_cluster() -> None:
    one, two = (CliRunner().invoke(cli, ["cluster", "secret"]).output for _ in range(2))

    assert one != two
    assert read_cluster_secret(one.encode(), "f") == (one.strip(),)


def test_a_password_is_the_first_line_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first\nsecond\n")

    assert ask_password(file) == "first"

    file.write_text("\n")
    with pytest.raises(ConfigError, match="empty"):
        ask_password(file)
