"""`run --migrate` where formats, logs and targets are not our own: a registry, a foreign cluster,
a lake, histories, and a pipeline that another process runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headwater.core_log.client import KafkaLog
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import Bounds, RetainedRange, TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline, load
from tests.contract.apache_kafka import run_apache_kafka
from tests.contract.conftest import connect_to
from tests.core_log.rows.avro.registry_fake import running_registry
from tests.pipelines.loops.migration.test_migrate_pipeline import FIRST, Shop

LAKE = """
pipeline: shop
source: {{type: files, path: "./in/*.jsonl", table: people, key: [{key}]}}
log: {{{log}}}
transform: [{transform}]
sink:
  - {{type: spark, name: mirror, format: {format}, path: ./mirror, commit_every: 0s}}
  - type: spark
    name: changes
    format: {format}
    path: ./changes
    tables: {{"*": {{mode: append}}}}
    commit_every: 0s
  - type: sql
    name: versions
    url: "sqlite:///versions.db"
    tables: {{"*": {{mode: scd2}}}}
    commit_every: 0s
"""


S = TypeVar("S", bound=Shop)


def filled(shop: S) -> S:
    shop.add("a", range(40), "first")
    shop.run()
    return shop


@pytest.mark.slow
@pytest.mark.parametrize("value", ["debezium-avro", "flat-avro"])
def test_a_topic_goes_to_avro_and_back_over_a_registry(tmp_path: Path, value: str) -> None:
    shop = filled(Shop(tmp_path))
    with running_registry() as registry:
        shop.edit(log=f'value: {value}, registry: "{registry.address}"')
        shop.add("b", range(20, 60), "second")
        shop.run(migrates=True)
        there = shop.verified()
        shop.edit(log=f'value: {value}, registry: "{registry.address}", partitions: 2')
        shop.run(migrates=True)
        shop.edit(log="partitions: 2")
        shop.add("c", range(50, 70), "third")
        shop.run(migrates=True)
        back = shop.verified()
        subjects = set(registry.subjects)

    assert subjects == {f"{FIRST}.g{n}-{part}" for n in (2, 3) for part in ("key", "value")}
    assert there == back == {"mirror": True, "changes": True}
    assert shop.topics() == {f"{FIRST}.g4": 2}
    assert shop.told("mirror") == sorted(shop.rows.items())
    assert len(shop.told("changes")) == 100


class ForeignShop(Shop):
    """Its log is another one at every turn, of a cluster that tells nothing of its compaction."""

    def __init__(self, directory: Path, open_log: Callable[[], Awaitable[Any]]) -> None:
        self.open_log = open_log
        super().__init__(directory)

    def do(self, work: Callable[[LoadedPipeline, Any], Awaitable[Any]]) -> Any:
        async def live() -> Any:
            [loaded] = load(self.directory / "pipeline.yaml", environment={})
            log = await self.open_log()
            try:
                return await work(loaded, log)
            finally:
                await log.close()

        return asyncio.run(live())


class SilentLog(EmbeddedLog):
    """As any broker but ours answers."""

    async def bounds(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Bounds]:
        found = await super().bounds(partitions)
        return {
            part: replace(each, cleaned_to=-1, deletes_dropped_to=-1)
            for part, each in found.items()
        }

    async def retained_ranges(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, RetainedRange]:
        found = await super().retained_ranges(partitions)
        return {
            part: replace(each, cleaned_to=-1, deletes_dropped_to=-1)
            for part, each in found.items()
        }


@pytest.fixture(params=["silent", pytest.param("apache kafka", marks=pytest.mark.kafka)])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    directory = tmp_path / "shop"
    directory.mkdir()
    if request.param == "silent":
        settings = BrokerSettings(
            data=tmp_path / "data", listen="127.0.0.1:0", internal_partitions=1
        )
        yield ForeignShop(directory, lambda: SilentLog.open(settings))
        return

    async def connected(endpoint: str) -> KafkaLog:
        return connect_to(endpoint)

    (tmp_path / "kafka").mkdir()
    with run_apache_kafka(tmp_path / "kafka") as endpoint:
        yield ForeignShop(directory, lambda: connected(endpoint))


@pytest.mark.slow
def test_a_foreign_cluster_takes_the_next_generation_as_well(foreign: ForeignShop) -> None:
    filled(foreign)
    foreign.edit(log="partitions: 3")
    foreign.add("b", range(20, 60), "second")

    foreign.run(migrates=True)

    assert foreign.topics() == {f"{FIRST}.g2": 3}
    assert foreign.told("mirror") == sorted(foreign.rows.items())
    assert len(foreign.told("changes")) == 80
    assert foreign.verified() == {"mirror": True, "changes": True}


@pytest.mark.slow
def test_a_foreign_cluster_gives_a_table_another_key(foreign: ForeignShop) -> None:
    filled(foreign)
    path = foreign.directory / "pipeline.yaml"
    path.write_text(path.read_text().replace("key: [id]", "key: [email]"))
    foreign.add("b", range(40, 60), "second")

    foreign.run(migrates=True)

    assert foreign.told("mirror") == sorted(foreign.rows.items())
    assert len(foreign.told("changes")) == 60


@pytest.mark.slow
def test_other_keys_of_a_log_that_does_not_tell_of_its_compaction_are_refused(
    foreign: ForeignShop,
) -> None:
    filled(foreign)
    foreign.edit(log="schemas: true")

    with pytest.raises(ConfigError, match="does not report compaction"):
        foreign.run(migrates=True)

    assert foreign.topics() == {FIRST: 1}


class LakeShop(Shop):
    """Its targets are a lake, and a history in SQLite."""

    format = "delta"

    def edit(self, *, log: str = "", transform: str = "", key: str = "id") -> None:
        text = LAKE.format(log=log, transform=transform, key=key, format=self.format)
        (self.directory / "pipeline.yaml").write_text(text)


class IcebergShop(LakeShop):
    format = "iceberg"


ALL_EQUAL = {"mirror": True, "changes": True, "versions": True}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [LakeShop, IcebergShop])
def test_a_lake_and_a_history_cross_over(tmp_path: Path, kind: type[LakeShop]) -> None:
    shop = filled(kind(tmp_path))
    shop.edit(log="partitions: 2, value: flat-json")
    shop.add("b", range(20, 60), "second")

    shop.run(migrates=True)
    first = shop.verified()
    shop.add("c", range(50, 70), "third")
    shop.run()

    assert first == shop.verified() == ALL_EQUAL
    assert shop.told("versions") == sorted(
        [(id, f"first{id}@example.org") for id in range(40)]
        + [(id, f"second{id}@example.org") for id in range(20, 60)]
        + [(id, f"third{id}@example.org") for id in range(50, 70)]
    )


@pytest.mark.slow
def test_a_table_of_the_lake_is_made_anew_when_its_key_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    shop = filled(LakeShop(tmp_path))
    shop.edit(key="email")
    shop.add("b", range(40, 60), "second")

    shop.run(migrates=True)
    shop.add("c", range(60, 70), "third")
    shop.run()

    assert "people is rebuilt from the log for its new schema" in caplog.text
    assert shop.verified() == ALL_EQUAL
