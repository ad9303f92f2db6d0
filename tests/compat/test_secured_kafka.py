"""Apache Kafka lets our client in by its SASL and TLS, and keeps it out where it should."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.errors import LogRejected, LogUnavailable
from headwater.core_log.foundation.settings import SecuritySettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from scripts.free_port import free_ports
from tests.certificates import Authority
from tests.contract.apache_kafka import PROPERTIES, running_node

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

USER, PASSWORD = "shop", "a-password-of-the-test"
LARGE = b"x" * 900_000
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LISTENERS = {
    "SASL_SSL": "SASL_SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
}
LOGIN = "org.apache.kafka.common.security"


class Secured(NamedTuple):
    """One node with a listener for every kind of security."""

    ports: Mapping[str, int]
    authority: Authority

    def log(self, listener: str, *, retry_for_ms: int = 20_000, **security: object) -> KafkaLog:
        protocol = LISTENERS[listener]
        files = {"ca_file": self.authority.file} if protocol.endswith("SSL") else {}
        user = {"user": USER, "password": PASSWORD} if protocol.startswith("SASL") else {}
        settings = {"protocol": protocol, **files, **user, **security}
        return KafkaLog(
            KafkaSettings(
                bootstrap=[f"127.0.0.1:{self.ports[listener]}"],
                security=SecuritySettings.model_validate(settings),
                retry_for_ms=retry_for_ms,
            )
        )


def properties_of(directory: Path, ports: Mapping[str, int], broker: Path, ca: Path) -> str:
    """PEM stores, and users by Kafka's own modules."""
    inside, controller = free_ports(2)
    text = PROPERTIES.format(broker=inside, controller=controller, directory=directory)
    listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
    protocols = "".join(f",{name}:{protocol}" for name, protocol in LISTENERS.items())
    lines = []
    for line in text.splitlines():
        if line.startswith(("listeners=", "advertised.listeners=")):
            line += listeners
        if line.startswith("listener.security.protocol.map="):
            line += protocols
        lines.append(line)
    lines += [
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={broker}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={ca}",
        "listener.name.mutual.ssl.client.auth=required",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
    ]
    for name in ("sasl_ssl", "sasl_plaintext"):
        lines.append(
            f"listener.name.{name}.plain.sasl.jaas.config="
            f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        lines += [
            f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config="
            f"{LOGIN}.scram.ScramLoginModule required;"
            for mechanism in MECHANISMS[1:]
        ]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory)
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    text = properties_of(directory, ports, authority.issue("broker"), authority.file)
    users = []
    for mechanism in MECHANISMS[1:]:
        users += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    with running_node(directory, text, *users, port=ports["SSL"]):
        yield Secured(ports, authority)


async def round_trip(log: KafkaLog, name: str) -> None:
    """A topic is made, written in a transaction, and read as committed."""
    try:
        await log.ensure_topic(TopicSettings(name=name))
        partition = TopicPartition(name, 0)
        writer = await log.writer(name)
        for value in (b"small", LARGE):
            offset = await writer.append(
                partition, Batch(encode_batch([PlainRecord(None, value)]), 1)
            )
            (fetched,) = await log.fetch({partition: offset})
            (batch,) = iterate_batches(fetched.data)
            assert decode_batch(batch)[1][0].value == value
        await log.commit_offsets(name, {partition: 1})
        assert await log.committed_offsets(name) == {partition: 1}
    finally:
        await log.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
async def test_a_user_reads_and_writes(secured: Secured, listener: str, mechanism: str) -> None:
    name = f"{listener}-{mechanism}".lower()

    await round_trip(secured.log(listener, mechanism=mechanism), name)


async def test_an_encrypted_connection_reads_and_writes(secured: Secured) -> None:
    await round_trip(secured.log("SSL"), "encrypted")


async def test_a_client_with_a_certificate_reads_and_writes(secured: Secured) -> None:
    mine = secured.authority.issue("client", password="of the key")
    log = secured.log("MUTUAL", certificate_file=mine, key_password="of the key")

    await round_trip(log, "mutual")


async def test_a_client_without_a_certificate_is_not_let_in(secured: Secured) -> None:
    with pytest.raises(LogUnavailable, match=r"(?i)certificate"):
        await round_trip(secured.log("MUTUAL", retry_for_ms=500), "never")


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_and_never_told(secured: Secured, mechanism: str) -> None:
    log = secured.log("SASL_SSL", mechanism=mechanism, password="guessed-by-somebody")

    with pytest.raises(LogRejected, match="refuses the user or the password") as refused:
        await round_trip(log, "never")

    assert "guessed" not in str(refused.value)


async def test_a_listener_that_wants_no_user_says_so(secured: Secured) -> None:
    log = secured.log("SSL", protocol="SASL_SSL", user=USER, password=PASSWORD)

    with pytest.raises(LogRejected, match="does not authenticate users"):
        await round_trip(log, "never")


async def test_a_stranger_in_the_brokers_place_is_not_trusted(
    secured: Secured, tmp_path: Path
) -> None:
    log = secured.log("SSL", ca_file=Authority(tmp_path, "stranger").file)

    with pytest.raises(LogRejected, match="not trusted"):
        await round_trip(log, "never")
