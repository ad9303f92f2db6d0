"""Apache Kafka with its StandardAuthorizer gives the golden answers of tests/golden/authorizer."""

import asyncio
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.client.kafka_log import dialling
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.settings import SecuritySettings
from headwater.core_log.links.node import open_link
from scripts.free_port import free_ports
from tests.contract.apache_kafka import PROPERTIES, running_node
from tests.core_log.broker.access_world import ROOT, Ask, play, users
from tests.core_log.broker.test_access import GOLDEN

pytestmark = [pytest.mark.kafka, pytest.mark.compat]

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def secured(directory: Path, *, plain: int, sasl: int) -> str:
    """Nobody comes by the plain listener, users and the node itself by the others."""
    text = PROPERTIES.format(broker=plain, controller=free_ports(1)[0], directory=directory)
    listener = f",SASL_PLAINTEXT://127.0.0.1:{sasl}"
    lines = []
    for line in text.splitlines():
        if line.startswith("auto.create"):
            continue
        if line.startswith(("listeners=", "advertised.listeners=")):
            line += listener
        if line.startswith("listener.security.protocol.map="):
            line = line.replace("CONTROLLER:PLAINTEXT", "CONTROLLER:SASL_PLAINTEXT")
            line += ",SASL_PLAINTEXT:SASL_PLAINTEXT"
        lines.append(line)
    known = " ".join(f'user_{name}="{name}"' for name in users())
    login = f'{LOGIN} required username="{ROOT}" password="{ROOT}" {known};'
    lines += [
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.controller.protocol=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "inter.broker.listener.name=SASL_PLAINTEXT",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={login}",
        f"listener.name.controller.plain.sasl.jaas.config={login}",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:root",
    ]
    return "\n".join(lines)


async def test_kafka_gives_the_golden_answers(tmp_path: Path) -> None:
    """HEADWATER_GOLDEN=write writes them anew."""
    plain, sasl = free_ports(2)

    async def connect(user: str | None) -> Ask:
        security: dict[str, object] = {}
        if user is not None:
            security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN"}
            security |= {"user": user, "password": user}
        settings = KafkaSettings(
            bootstrap=["127.0.0.1:1"], security=SecuritySettings.model_validate(security)
        )
        port = plain if user is None else sasl
        link = await open_link("127.0.0.1", port, dialling(settings), settings)

        def ask(request: Any, version: int | None = None) -> Awaitable[Any]:
            return link.ask(request, version_max=version)

        return ask

    with running_node(tmp_path, secured(tmp_path, plain=plain, sasl=sasl), port=sasl):
        told = await play(connect)

    if os.environ.get("HEADWATER_GOLDEN") == "write":
        await asyncio.to_thread(GOLDEN.write_text, told)
    assert told == await asyncio.to_thread(GOLDEN.read_text)
