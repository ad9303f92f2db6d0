"""Dead letters and commands: what is run was planned, once, and with the name typed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records.record_codec import decode_batch, iterate_batches
from headwater.pipelines.console import command_runs
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, HiddenColumns
from headwater.pipelines.dead_letters.dead_letter import (
    DeadLetter,
    FailureStage,
    append_dead_letters,
    dead_letter_topic,
)
from headwater.pipelines.journal.audit import read_actions
from tests.pipelines.console.served_console import ServedConsole, served_console, sources_of
from tests.pipelines.pipeline_in_memory import tables_of
from tests.served_log import ServedLog, served_log

pytestmark = pytest.mark.slow

PLACE = TopicPartition("shop.public.orders", 0)
PROBLEM = "the value of column value does not fit"
REDRIVE = {"kind": "redrive", "target": "shop", "options": {"number": "0"}}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "data") as log:
        log.write(tables_of([("orders", "c", key, f"value {key}") for key in range(3)], commit=1))
        log.write(tables_of([("orders", "u", 1, "newer")], commit=2))
        log.run(lambda: set_aside(log))
        yield log


async def set_aside(served: ServedLog) -> None:
    """The first three records, of which the second has a newer one."""
    log = served.log
    await log.ensure_topic(dead_letter_topic("shop"))
    records = [
        record
        for each in await log.fetch({PLACE: 0}, limit=FetchLimit(), isolation=Isolation.COMMITTED)
        for batch in iterate_batches(each.data)
        for record in decode_batch(batch)[1]
    ][:3]
    topic_id = await log.topic_id(PLACE.topic)
    letters = [
        DeadLetter(
            PLACE.topic,
            0,
            each.offset,
            each.key,
            each.value,
            tuple(each.headers),
            FailureStage.SINK,
            PROBLEM,
            "1#0",
            "public.orders",
            "sink",
            topic_id=topic_id,
        )
        for each in records
    ]
    await append_dead_letters(log, "shop", letters, now_ms=1_000)


@asynccontextmanager
async def console_over(
    served: ServedLog, *, hidden: HiddenColumns = NOTHING_HIDDEN, is_read_only: bool = False
) -> AsyncIterator[ServedConsole]:
    address = f"--bootstrap={served.log.bootstrap[0]}"
    sources = sources_of(served.log, hidden=hidden, arguments=(address,), is_read_only=is_read_only)
    async with served_console(sources) as console:
        yield console


async def until(look: Callable[[], Coroutine[Any, Any, Any]], state: str) -> Any:
    """The run of a command once it is no longer running."""
    while True:
        found = (await look())[0]
        if found["state"] != "running":
            assert found["state"] == state, found
            return found
        await asyncio.sleep(0.05)


def test_a_dead_letter_says_why_and_what_a_redrive_would_do(served: ServedLog) -> None:
    async def look() -> None:
        async with console_over(served) as console:
            [group] = await console.ask("/letters")
            assert (group["table"], group["problem"], group["count"]) == (
                "public.orders", PROBLEM, 3
            )  # fmt: skip
            lines = await console.ask("/pipelines/shop/letters?table=public.orders")
            assert [each["number"] for each in lines] == [2, 1, 0]
            page = await console.ask("/pipelines/shop/letters/0")
            assert page["fields"] == [
                {"name": "id", "value": "0"}, {"name": "value", "value": "value 0"}
            ]  # fmt: skip
            assert page["is_redrivable"] and page["key"] == "0"
            overtaken = await console.ask("/pipelines/shop/letters/1")
            assert not overtaken["is_redrivable"] and "newer" in overtaken["fate"]
            status, error = await console.refusal("/pipelines/shop/letters/77")
            assert status == 400 and error["facts"]["number"] == 77

    served.run(look)


def test_a_hidden_column_is_not_in_a_dead_letter(served: ServedLog) -> None:
    async def look() -> None:
        hidden = HiddenColumns({"shop": ["public.orders.value"]})
        async with console_over(served, hidden=hidden) as console:
            page = await console.ask("/pipelines/shop/letters/0")
            assert page["fields"] == [{"name": "id", "value": "0"}]
            assert "value 0" not in str(page)

    served.run(look)


def test_a_planned_redrive_is_run_once_and_recorded(served: ServedLog) -> None:
    async def act() -> None:
        async with console_over(served) as console:
            plan = await console.ask("/plans", "POST", REDRIVE)
            assert plan["lines"] == ["#0 redriven"] and plan["typed"] == ""
            assert plan["command"] == "headwater dlq redrive shop --number=0"
            assert len(await console.ask("/pipelines/shop/letters")) == 3, "a plan does nothing"
            await console.ask("/runs", "POST", {"plan": plan["id"]})
            run = await until(lambda: console.ask("/runs"), "done")
            assert run["answer"] == [{"number": 0, "table": "public.orders", "outcome": "redriven"}]
            status, error = await console.refusal("/runs", "POST", {"plan": plan["id"]})
            assert status == 404 and "expired" in error["problem"]
            assert len(await console.ask("/pipelines/shop/letters")) == 2
            [action] = await console.ask("/audit")
            assert (action["command"], action["via"]) == ("dlq redrive", "console")
            assert action["outcome"] == "done"

    served.run(act)


def test_a_command_that_replaces_wants_the_name_typed(served: ServedLog) -> None:
    async def act() -> None:
        async with console_over(served) as console:
            wanted = {"kind": "drop-dead-letters", "target": "shop", "options": {"number": "1"}}
            plan = await console.ask("/plans", "POST", wanted)
            assert plan["typed"] == "shop"
            status, _ = await console.refusal("/runs", "POST", {"plan": plan["id"]})
            assert status == 400
            assert await read_actions(served.log) == []
            await console.ask("/runs", "POST", {"plan": plan["id"], "typed": "shop"})
            await until(lambda: console.ask("/runs"), "done")
            assert len(await console.ask("/pipelines/shop/letters")) == 2

    served.run(act)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ({"kind": "shell", "target": "shop"}, "no command of this name"),
        ({"kind": "redrive", "target": "--help"}, "not a name"),
        ({"kind": "redrive", "target": "shop", "options": {"data": "/"}}, "this option"),
        ({"kind": "verify", "target": "shop"}, "only from a pipeline file"),
        ({"kind": "redrive", "target": "nobody"}, "no pipeline of this name"),
        ({"target": "shop"}, "the body"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(
    served: ServedLog, wanted: dict[str, object], problem: str
) -> None:
    async def act() -> None:
        async with console_over(served) as console:
            status, error = await console.refusal("/plans", "POST", wanted)
            assert status == 400 and problem in error["problem"]

    served.run(act)


def test_a_plan_expires(served: ServedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runs, "PLAN_MS", -1)

    async def act() -> None:
        async with console_over(served) as console:
            wanted = {"kind": "snapshot", "target": "shop"}
            plan = await console.ask("/plans", "POST", wanted)
            status, error = await console.refusal("/runs", "POST", {"plan": plan["id"]})
            assert status == 404 and "expired" in error["problem"]

    served.run(act)


def test_a_read_only_console_plans_and_runs_nothing(served: ServedLog) -> None:
    async def act() -> None:
        async with console_over(served, is_read_only=True) as console:
            assert (await console.refusal("/plans", "POST", REDRIVE))[0] == 404
            assert (await console.refusal("/runs", "POST", {"plan": "x"}))[0] == 405
            assert await console.ask("/runs") == []

    served.run(act)
