"""Settings of the embedded log as those of a broker."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.replication.liveness import SESSION_MS
from headwater.pipelines.file.log_settings import LogSettings

FILE = Path("/etc/headwater")


def settings_of(**log: object) -> LogSettings:
    return LogSettings.model_validate(log)


def test_a_log_that_is_alone_has_the_settings_of_a_broker_alone() -> None:
    found = settings_of().as_broker(Path("d"), directory=FILE)

    assert found == BrokerSettings(data=Path("d"), listen="127.0.0.1:0", auto_create_topics=False)


def test_files_of_a_cluster_are_found_from_the_pipeline_file() -> None:
    tls = {"certificate_file": "node.pem", "key_file": "node.key", "ca_file": "/ca.pem"}
    security = {"sasl": "SCRAM-SHA-512", "session_max": "1h", "tls": tls}
    cluster = {"secret": "cluster.secret", "security": security}

    found = settings_of(cluster=cluster, rack="a").as_broker(Path("d"), directory=FILE)

    assert found.cluster_secret == FILE / "cluster.secret"
    assert found.rack == "a"
    assert found.security.session_ms_max == 3_600_000
    assert found.security.tls is not None
    assert found.security.tls.certificate_file == FILE / "node.pem"
    assert found.security.tls.trusted_file == Path("/ca.pem")


@pytest.mark.parametrize(("given", "ms"), [("24h", 86_400_000), ("never", None)])
def test_a_voter_that_is_away_is_replaced_after_a_time_or_never(given: str, ms: int | None) -> None:
    cluster = settings_of(cluster={"replace_voters_after": given})

    found = cluster.as_broker(Path("d"), directory=FILE)

    assert found.replace_voters_after_ms == ms
    assert BrokerSettings(replace_voters_after_ms=given).replace_voters_after_ms == ms


def test_a_voter_is_not_replaced_before_its_broker_is_fenced() -> None:

    assert BrokerSettings(replace_voters_after_ms=SESSION_MS).replace_voters_after_ms
    with pytest.raises(ValidationError):
        BrokerSettings(replace_voters_after_ms=SESSION_MS - 1)
    with pytest.raises(ValidationError):
        settings_of(cluster={"replace_voters_after": "0s"})


def test_the_default_is_that_of_a_broker() -> None:
    found = settings_of(cluster={}).as_broker(Path("d"), directory=FILE)

    assert found.replace_voters_after_ms == BrokerSettings().replace_voters_after_ms == 600_000


def test_others_reach_a_broker_at_the_address_that_it_advertises() -> None:
    cluster = {"join": ["b:9092", "a:9092"], "advertise": "a:9092"}

    assert settings_of(listen="0.0.0.0:9092", cluster=cluster).brokers == ("a:9092", "b:9092")
    assert settings_of(cluster={"join": "b:9092"}).brokers == ("b:9092",)
