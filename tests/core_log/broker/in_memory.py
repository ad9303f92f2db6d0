"""A whole broker with its files in memory and without a socket, and a way to ask it."""

from pathlib import Path
from random import Random
from typing import Any

from core_log.broker.broker import Broker
from core_log.broker.dispatch import RequestContext, load_handlers
from core_log.protocol import message
from core_log.settings import BrokerSettings
from core_log.storage.files import Files
from core_log.storage.store import Store
from tests.fakes import SimulatedClock

SERVED = load_handlers()


async def started(files: Files, **settings: Any) -> Broker:
    clock = SimulatedClock(1_000)
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
