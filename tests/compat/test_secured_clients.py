"""Clients of others reach a broker by TLS, with a password or a certificate."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.crash.broker_process import PROJECT, BrokerProcess

pytestmark = pytest.mark.compat
USER, PASSWORD, TOPIC = "alice", "a password", "orders"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")


@dataclass(frozen=True)
class Secured:
    broker: BrokerProcess
    ca_file: Path
    certificate: Path

    @property
    def confluent(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.broker.address, "ssl.ca.location": str(self.ca_file)}

    def by_password(self, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
        return self.confluent | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": mechanism,
            "sasl.username": USER,
            "sasl.password": password,
        }

    @property
    def by_certificate(self) -> dict[str, Any]:
        file = str(self.certificate)
        return self.confluent | {
            "security.protocol": "SSL",
            "ssl.certificate.location": file,
            "ssl.key.location": file,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    authority = Authority(directory)
    file, certificate = authority.issue("broker"), authority.issue("carol")
    settings = {
        "security.sasl": ",".join(MECHANISMS),
        "security.tls.certificate_file": str(file),
        "security.tls.key_file": str(file),
        "security.tls.ca_file": str(authority.file),
        "security.tls.client_ca_file": str(authority.file),
        "security.super_users": f"User:{USER};User:CN=carol",
    }
    broker = BrokerProcess(directory / "data", directory / "broker.log", settings)
    broker.start()
    (directory / "password").write_text(PASSWORD)
    for mechanism in MECHANISMS[:2]:
        command = ["cluster", "users", "add", USER, "--mechanism", mechanism]
        command += ["--password-file", str(directory / "password"), "--data", str(broker.data)]
        subprocess.run(
            [sys.executable, "-m", "headwater.pipelines.cli", *command], cwd=PROJECT, check=True
        )
    yield Secured(broker, authority.file, certificate)
    broker.stop()


def round_trip(settings: dict[str, Any], value: bytes) -> bool:
    producer = Producer(settings | {"enable.idempotence": True})
    producer.produce(TOPIC, value)
    assert producer.flush(30) == 0
    consumer = Consumer(settings | {"group.id": "readers"})
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        while (message := consumer.poll(30)) is not None:
            if message.error() is None and message.value() == value:
                return True
        return False
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_comes_in_by_a_password(secured: Secured, mechanism: str) -> None:
    assert round_trip(secured.by_password(mechanism), mechanism.encode() * 1000)


def test_librdkafka_comes_in_by_a_certificate(secured: Secured) -> None:
    assert round_trip(secured.by_certificate, b"certificate")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_as_such(secured: Secured, mechanism: str) -> None:
    told: list[str] = []
    settings = secured.by_password(mechanism, "wrong")
    producer = Producer(settings | {"error_cb": lambda error: told.append(error.name())})

    with pytest.raises(Exception, match="Failed to get metadata"):
        producer.list_topics(timeout=3)
    producer.poll(1)

    assert "_AUTHENTICATION" in told


def test_librdkafkas_administrator_changes_users(secured: Secured) -> None:
    admin: Any = AdminClient(secured.by_certificate)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8_192)
    wanted = UserScramCredentialUpsertion("bob", info, b"bob's password")

    admin.alter_user_scram_credentials([wanted])["bob"].result(30)

    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(30)
    [found] = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (ScramMechanism.SCRAM_SHA_256, 8_192)
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([gone])["bob"].result(30)
    with pytest.raises(Exception, match="does not exist"):
        admin.describe_user_scram_credentials(["bob"])["bob"].result(30)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_comes_in(secured: Secured, mechanism: str) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=secured.broker.address,
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
        ssl_context=ssl.create_default_context(cafile=str(secured.ca_file)),
    )
    await producer.start()
    try:
        assert (await producer.send_and_wait(TOPIC, b"aiokafka")).offset >= 0
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_comes_in(secured: Secured, mechanism: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=secured.broker.address,
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_plain_username=USER,
        sasl_plain_password=PASSWORD,
        ssl_cafile=str(secured.ca_file),
    )
    try:
        assert producer.send(TOPIC, b"kafka-python").get(30).offset >= 0
    finally:
        producer.close()
