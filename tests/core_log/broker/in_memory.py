"""A whole broker with its files in memory and without a socket, and a way to ask it."""

from pathlib import Path
from random import Random
from typing import Any

from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.coordination import PartitionStateLog
from headwater.core_log.broker.dispatch import RequestContext, load_handlers
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol import message
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.storage.files import Files
from headwater.core_log.storage.store import Store
from tests.fakes import SimulatedClock

SERVED = load_handlers()


async def started(files: Files, *, clock: Clock | None = None, **settings: Any) -> Broker:
    clock = clock or SimulatedClock(1_000)
    store = Store.open(Path("/data"), files=files, clock=clock, random=Random(), node_id=1)
    random = Random(len(files.names(store.log_directory)))
    broker = Broker(BrokerSettings(**settings), store, SERVED, clock=clock, random=random)
    await broker.open("advertised", 9092)
    return broker


async def ask(broker: Broker, request: Any, version: int | None = None) -> Any:
    """Through the wire's own encoding, there and back; in the newest version unless told."""
    served = SERVED[request.api_key]
    version = served.versions[1] if version is None else version
    received = message.decode(type(request), memoryview(message.encode(request, version)), version)
    context = RequestContext(version, "test", "127.0.0.1", "127.0.0.1", 19092)
    assert served.handler is not None
    response = await served.handler(broker, received, context)
    return message.decode(type(response), memoryview(message.encode(response, version)), version)


def versions(request: Any) -> list[int]:
    low, high = request.versions
    return list(range(low, high + 1))


async def create(broker: Broker, name: str, partitions: int = 1, **config: str) -> Any:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in config.items()
    ]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, configs=configs
    )
    response = await ask(broker, CreateTopicsRequest(topics=[topic]))
    return response.topics[0]


async def fill(broker: Broker, topic: str, count: int, *, index: int = 0) -> None:
    partition = broker.find_led(topic, index)
    assert partition is not None
    log = PartitionStateLog(partition, broker.clock)
    for _ in range(count):
        log.append([(b"key", b"value")])
    await log.durable(log.end_offset)
