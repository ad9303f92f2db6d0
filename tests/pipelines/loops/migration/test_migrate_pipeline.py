"""`run --migrate` over a real log: files into SQLite, as a mirror and as every change."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.loader import LoadedPipeline, load
from headwater.pipelines.journal.control import control_topic, read_desired
from headwater.pipelines.journal.internal_topics import read_decided
from headwater.pipelines.journal.inventory import drop_former
from headwater.pipelines.journal.schemas import topics_of
from headwater.pipelines.preview.plan import Plan, plan_of
from headwater.pipelines.running.first_checks import checked_first
from headwater.pipelines.running.migration_approval import approve
from headwater.pipelines.time_travel.history.key_history import key_bytes, key_history
from headwater.pipelines.time_travel.rebuild.rebuild import RebuildOptions, find_rebuilding, rebuild
from headwater.pipelines.time_travel.verify.result import ComparedSides
from headwater.pipelines.time_travel.verify.table_selection import subjects_of
from headwater.pipelines.time_travel.verify.verify import Verifier
from tests.pipelines.task_runs import task_run

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: shop
source: {{type: files, path: "./in/*.jsonl", table: people, key: [id]}}
log: {{{log}}}
transform: [{transform}]
sink:
  - {{type: sql, name: mirror, url: "sqlite:///mirror.db", commit_every: 0s}}
  - type: sql
    name: changes
    url: "sqlite:///changes.db"
    tables: {{"*": {{mode: append}}}}
    commit_every: 0s
"""
MASKED = '{table: "*", mask: {email: hash}, drop: [phone]}'
FIRST = "shop.people"


class Shop:
    """A directory with a pipeline, run to its end again and again."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.rows = directory, dict[int, str]()
        (directory / "in").mkdir()
        self.edit()

    def edit(self, *, log: str = "", transform: str = "") -> None:
        text = PIPELINE.format(log=log, transform=transform)
        (self.directory / "pipeline.yaml").write_text(text)

    def add(self, name: str, ids: range, mark: str) -> None:
        self.rows |= {id: f"{mark}{id}@example.org" for id in ids}
        lines = [{"id": id, "email": self.rows[id], "phone": f"+1{id}"} for id in ids]
        path = self.directory / "in" / f"{name}.jsonl"
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))

    def do(self, work: Callable[[LoadedPipeline, EmbeddedLog], Awaitable[Any]]) -> Any:
        async def live() -> Any:
            [loaded] = load(self.directory / "pipeline.yaml", environment={})
            settings = BrokerSettings(
                data=loaded.log_path, listen="127.0.0.1:0", internal_partitions=1
            )
            log = await EmbeddedLog.open(settings)
            try:
                return await work(loaded, log)
            finally:
                await log.close()

        return asyncio.run(live())

    def run(self, *, migrates: bool = False) -> None:
        async def work(loaded: LoadedPipeline, log: EmbeddedLog) -> None:
            await log.ensure_topic(control_topic())
            if migrates:
                await approve(loaded, log, now_ms=1)
            wanted, run_task = await read_desired(log, loaded.name), checked_first()
            for task in ("source", *(part.name for part in loaded.sinks)):
                await run_task(task_run(loaded, task, log, desired=lambda: wanted))

        self.do(work)

    def plan(self) -> Plan:
        found: Plan = self.do(lambda loaded, log: plan_of(loaded, log, clock=SystemClock()))
        return found

    def topics(self) -> dict[str, int]:
        async def work(loaded: LoadedPipeline, log: EmbeddedLog) -> dict[str, int]:
            found = await topics_of(log, loaded.name)
            return {topic: await log.partition_count(topic) for topic in found}

        found: dict[str, int] = self.do(work)
        return found

    def records(self, topic: str) -> bytes:
        async def work(_: LoadedPipeline, log: EmbeddedLog) -> bytes:
            found = b""
            for number in range(await log.partition_count(topic)):
                async for columns in read_decided(log, TopicPartition(topic, number)):
                    cells = [*columns.keys.to_pylist(), *columns.values.to_pylist()]
                    found += b"".join([*cells, *columns.headers.to_pylist()])
            return found

        found: bytes = self.do(work)
        return found

    def verified(self) -> dict[str, bool]:
        async def work(loaded: LoadedPipeline, log: EmbeddedLog) -> dict[str, bool]:
            verifier = Verifier(loaded, log, clock=SystemClock(), is_running=False)
            verdicts = await verifier.verify(
                await subjects_of(loaded, log), ComparedSides(source=False)
            )
            return {each.side: each.is_equal for each in verdicts}

        found: dict[str, bool] = self.do(work)
        return found

    def told(self, sink: str) -> list[tuple[int, str]]:
        with closing(sqlite3.connect(self.directory / f"{sink}.db")) as database:
            return sorted(database.execute("SELECT id, email FROM people"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.add("a", range(40), "first")
    shop.run()
    return shop


@pytest.mark.parametrize(
    "log", ["partitions: 3", "value: flat-json", "schemas: true", "partitions: 2, value: flat-json"]
)
def test_another_shape_of_a_topic_takes_over_between_two_changes(shop: Shop, log: str) -> None:
    shop.edit(log=log)
    shop.add("b", range(20, 60), "second")

    plan = shop.plan()
    with pytest.raises(ConfigError, match="cannot change while it has records"):
        shop.run()
    shop.run(migrates=True)

    assert plan.moves == {FIRST: f"{FIRST}.g2"}
    assert list(shop.topics()) == [f"{FIRST}.g2"]
    assert shop.plan().moves == {}
    assert shop.told("mirror") == sorted(shop.rows.items())
    first = [(id, f"first{id}@example.org") for id in range(40)]
    second = [(id, f"second{id}@example.org") for id in range(20, 60)]
    assert shop.told("changes") == sorted(first + second)
    assert shop.verified() == {"mirror": True, "changes": True}


def test_a_table_that_nothing_happened_to_since_is_compared_with_its_new_topic(shop: Shop) -> None:
    shop.edit(log="partitions: 2")

    shop.run(migrates=True)

    assert shop.topics() == {f"{FIRST}.g2": 2}
    assert shop.verified() == {"mirror": True, "changes": True}
    assert len(shop.told("changes")) == 40


def test_a_column_masked_now_is_in_no_record_of_the_new_topic(shop: Shop) -> None:
    shop.edit(transform=MASKED)

    shop.run(migrates=True)

    present = shop.records(f"{FIRST}.g2")
    assert b'"id":7' in present and b"@example.org" not in present and b"phone" not in present
    assert b"@example.org" in shop.records(FIRST)
    assert any(FIRST in each and "--generations" in each for each in shop.plan().remarks)


def test_a_rebuilt_table_holds_only_what_is_masked(shop: Shop) -> None:
    shop.edit(transform=MASKED)
    shop.run(migrates=True)

    async def rebuilt(loaded: LoadedPipeline, log: EmbeddedLog) -> int:
        found = await find_rebuilding(loaded, log, table="people", sink="mirror")
        swapped = await rebuild(
            found,
            log,
            RebuildOptions(swaps=True),
            is_running=False,
            clock=SystemClock(),
            reporter=lambda _: None,
        )
        return swapped.rows

    before = shop.told("mirror")
    rows = shop.do(rebuilt)
    shop.add("b", range(20, 60), "second")
    shop.run()

    assert rows == len(before) == 40 and "@" in before[0][1]
    told = shop.told("mirror")
    assert [id for id, _ in told] == list(range(60))
    assert not any("@" in email for _, email in told)


def test_former_topics_go_when_asked_and_the_pipeline_goes_on(shop: Shop) -> None:
    shop.edit(log="partitions: 2")
    shop.run(migrates=True)

    async def drop(loaded: LoadedPipeline, log: EmbeddedLog) -> list[str]:
        gone = drop_former(log, loaded.name, with_unread=False, now_ms=1)
        return [each async for each in gone]

    gone = shop.do(drop)
    shop.add("b", range(20, 60), "second")
    shop.run()

    assert gone == [f"topic {FIRST}", f"schemas of {FIRST}, 1 of them"]
    assert len(shop.told("changes")) == 80
    assert shop.told("mirror") == sorted(shop.rows.items())
    assert shop.plan().remarks == ()


def test_a_sink_that_is_behind_keeps_its_former_topic(shop: Shop) -> None:
    shop.add("b", range(20, 60), "second")
    shop.edit(log="partitions: 2")

    async def only_the_source(loaded: LoadedPipeline, log: EmbeddedLog) -> list[str]:
        await approve(loaded, log, now_ms=1)
        wanted = await read_desired(log, loaded.name)
        for migrates in (False, True):
            await checked_first()(
                task_run(loaded if migrates else before, "source", log, desired=lambda: wanted)
            )
        gone = drop_former(log, loaded.name, with_unread=False, now_ms=1)
        return [each async for each in gone]

    [after] = load(shop.directory / "pipeline.yaml", environment={})
    shop.edit()
    [before] = load(shop.directory / "pipeline.yaml", environment={})

    with pytest.raises(ConfigError, match="has not finished a former topic"):
        shop.do(lambda _, log: only_the_source(after, log))


def test_the_history_of_a_key_is_in_the_new_topic(shop: Shop) -> None:
    shop.add("b", range(20, 60), "second")
    shop.edit(log="partitions: 3, value: flat-json")
    shop.run(migrates=True)

    async def history(loaded: LoadedPipeline, log: EmbeddedLog) -> list[tuple[str, Any]]:
        [stored] = (await topics_of(log, loaded.name)).values()
        keys = await key_bytes(log, stored, "30")
        found = [each async for each in key_history(log, stored, keys)]
        return [(each.at.partition("#")[0], each.row) for each in found]

    told = shop.do(history)

    assert [row["email"] for _, row in told] == ["first30@example.org", "second30@example.org"]
    assert [at for at, _ in told] == ["a.jsonl", "b.jsonl"]


def test_a_mask_that_is_taken_back_is_refused_with_the_reason(shop: Shop) -> None:
    shop.edit(transform=MASKED)
    shop.run(migrates=True)
    shop.edit(transform='{table: "*", mask: {email: redact}, drop: [phone]}')
    shop.run(migrates=True)

    shop.edit()

    plan = shop.plan()
    assert [each.what for each in plan.differences if each.hindrance] == ["mask of email"]
    assert plan.moves == {}
    with pytest.raises(ConfigError, match="values behind a mask are not in the log"):
        shop.run(migrates=True)
