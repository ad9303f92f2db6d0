"""The logs that have to keep the contract: embedded, served by our broker, and Apache Kafka."""

import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.links.rpc import Dial
from headwater.core_log.model.log import Log, TopicPartition
from tests.contract.apache_kafka import run_apache_kafka
from tests.contract.foreign_topics import Cluster

_numbers = count(1)


class Ground:
    """One running log, as a test sees it: `log` is under test, `client` reaches the same one."""

    def __init__(self, kind: str, log: Log, client: KafkaLog, endpoint: str) -> None:
        self.kind, self.log, self.client, self.endpoint = kind, log, client, endpoint
        self._opened: list[KafkaLog] = []
        self._prefix = f"t{os.getpid()}-{next(_numbers)}"

    def name(self, suffix: str) -> str:
        """A name nobody else uses, since clusters may be shared between tests."""
        return f"{self._prefix}-{suffix}"

    async def topic(
        self, *, partitions: int = 1, config: dict[str, str] | None = None
    ) -> list[TopicPartition]:
        name = self.name(f"topic{next(_numbers)}")
        await self.log.ensure_topic(
            TopicSettings(name=name, partitions=partitions, config=config or {})
        )
        return [TopicPartition(name, index) for index in range(partitions)]

    def connect(self, *, dial: Dial | None = None, **settings: object) -> KafkaLog:
        """Another client of the same log."""
        log = connect_to(self.endpoint, dial=dial, **settings)
        self._opened.append(log)
        return log

    async def close(self) -> None:
        for log in (*self._opened, self.client):
            await log.close()


def connect_to(endpoint: str, *, dial: Dial | None = None, **settings: object) -> KafkaLog:
    chosen = {"retry_for_ms": 20_000, "unknown_topic_for_ms": 300, **settings}
    return KafkaLog(KafkaSettings.model_validate({"bootstrap": [endpoint], **chosen}), dial=dial)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_apache_kafka(tmp_path_factory.mktemp("kafka")) as endpoint:
        yield endpoint


@pytest.fixture(
    params=["embedded", "served", pytest.param("apache kafka", marks=pytest.mark.kafka)]
)
async def ground(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ground]:
    kind: str = request.param
    if kind == "apache kafka":
        endpoint: str = request.getfixturevalue("apache_kafka")
        client = connect_to(endpoint)
        ground = Ground(kind, client, client, endpoint)
        yield ground
        await ground.close()
        return
    from headwater.core_log.embedded import EmbeddedLog

    embedded = await EmbeddedLog.open(
        BrokerSettings(
            data=tmp_path,
            listen="127.0.0.1:0",
            internal_partitions=2,
            housekeeping_interval_ms=100,
        )
    )
    client = connect_to(embedded.endpoint)
    ground = Ground(kind, embedded if kind == "embedded" else client, client, embedded.endpoint)
    yield ground
    await ground.close()
    await embedded.close()


@pytest.fixture(params=["headwater", pytest.param("apache kafka", marks=pytest.mark.kafka)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    from headwater.core_log.embedded import EmbeddedLog

    if request.param == "apache kafka":
        endpoint: str = request.getfixturevalue("apache_kafka")
        log = connect_to(endpoint)
        yield Cluster(endpoint, log)
        await log.close()
        return
    embedded = await EmbeddedLog.open(
        BrokerSettings(data=tmp_path, listen="127.0.0.1:0", internal_partitions=2)
    )
    yield Cluster(embedded.endpoint, embedded)
    await embedded.close()
