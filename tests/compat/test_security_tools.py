"""kafka-configs and kafka-acls say the same of our quotas and ACLs as of Apache Kafka's."""

import asyncio
from pathlib import Path

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.security.acls import Authorizer
from headwater.core_log.security.principal import ANONYMOUS
from scripts.free_port import free_ports
from tests.cluster.kafka_tools import KafkaTools
from tests.compat.java_programs import kafka_jars
from tests.contract.apache_kafka import PROPERTIES, java, running_node

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

USER, ANY_USER = "--entity-type users --entity-name", "--entity-type users --entity-default"
CLIENT = "--entity-type clients --entity-name"
ADDRESS = "--entity-type ips --entity-name"
BYTES = "producer_byte_rate=1000,consumer_byte_rate=2000"
COMMANDS = (
    f"kafka-configs --alter {USER} alice --add-config {BYTES}",
    f"kafka-configs --alter {USER} alice {CLIENT} app --add-config request_percentage=12.5",
    f"kafka-configs --alter {ANY_USER} --add-config producer_byte_rate=3000",
    f"kafka-configs --alter {CLIENT} etl --add-config controller_mutation_rate=1",
    f"kafka-configs --alter {ADDRESS} 10.0.0.1 --add-config connection_creation_rate=4",
    f"kafka-configs --alter {USER} alice --delete-config consumer_byte_rate",
    f"kafka-configs --describe {USER} alice",
    "kafka-configs --describe --entity-type users",
    f"kafka-configs --describe {USER} alice --entity-type clients",
    "kafka-configs --describe --entity-type clients",
    "kafka-configs --describe --entity-type ips",
    f"kafka-configs --alter {USER} alice --add-config no_such_rate=1",
    f"kafka-configs --alter {USER} alice --add-config producer_byte_rate=0",
    "kafka-acls --add --allow-principal User:alice --operation Read --topic orders",
    "kafka-acls --add --deny-principal User:bob --deny-host 10.0.0.9 --operation Write --topic '*'",
    "kafka-acls --add --allow-principal User:alice --consumer --group report --topic ord "
    "--resource-pattern-type prefixed",
    "kafka-acls --add --allow-principal User:carol --operation Alter --cluster",
    "kafka-acls --list",
    "kafka-acls --list --principal User:alice",
    "kafka-acls --list --topic orders --resource-pattern-type match",
    "kafka-acls --remove --force --allow-principal User:alice --operation Read --topic orders",
    "kafka-acls --remove --force --cluster",
    "kafka-acls --list",
)


def run(jars: Path, address: str) -> list[str]:
    """Returns what each command prints, its lines in order: Kafka keeps rules in hash maps."""
    tools, said = KafkaTools(java(str(jars)), {1: address}), []
    try:
        for words in COMMANDS:
            text, code = tools.run(words)
            shown = text.replace(address, "ADDRESS")
            lines = [line.rstrip() for line in shown.splitlines() if line.strip()]
            lines = sorted(each for each in lines if not each.startswith("\t"))  # stack traces
            said.append("\n".join([words, f"exit {code}", *lines]))
    finally:
        tools.end()
    return said


def guarded(directory: Path, port: int) -> str:
    return PROPERTIES.format(broker=port, controller=free_ports(1)[0], directory=directory) + (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:ANONYMOUS\n"
    )


async def test_quotas_and_acls_read_as_with_kafka(tmp_path: Path) -> None:
    jars, port = kafka_jars(), free_ports(1)[0]
    ours = await RunningBroker.start(BrokerSettings(data=tmp_path / "ours", listen="127.0.0.1:0"))
    ours.broker.authorizer = Authorizer([ANONYMOUS])

    with running_node(tmp_path, guarded(tmp_path, port), port=port):
        theirs = await asyncio.to_thread(run, jars, f"127.0.0.1:{port}")
    told = await asyncio.to_thread(run, jars, ours.endpoint)

    await ours.stop()
    different = [each for each in zip(told, theirs, strict=True) if each[0] != each[1]]
    assert different == []
