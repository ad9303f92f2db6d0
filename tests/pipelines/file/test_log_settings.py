"""Settings of the embedded log as those of a broker."""

from pathlib import Path

from headwater.core_log.foundation.settings import BrokerSettings
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


def test_others_reach_a_broker_at_the_address_that_it_advertises() -> None:
    cluster = {"join": ["b:9092", "a:9092"], "advertise": "a:9092"}

    assert settings_of(listen="0.0.0.0:9092", cluster=cluster).brokers == ("a:9092", "b:9092")
    assert settings_of(cluster={"join": "b:9092"}).brokers == ("b:9092",)
