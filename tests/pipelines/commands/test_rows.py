"""One key is found among all others, with everything that it ever was and when."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.reports import StateChanged, TaskState
from headwater.pipelines.running.owner_client import LockHolder
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.time_travel.history import key_history as searching
from headwater.pipelines.time_travel.history.as_of import parse_as_of
from headwater.pipelines.time_travel.history.cut_points import find_cut_point
from headwater.pipelines.time_travel.history.key_history import (
    KeyChange,
    key_bytes,
    key_history,
    newest_change,
    stored_schema,
)
from headwater.pipelines.watching.http_api import HttpApi, ReportStream, RequestAnswer
from headwater.pipelines.watching.status import StatusBoard
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare, keys: {v: [a, b]}}
sink: {type: console}
log: {partitions: 3}
"""
KEYS = 200


def execute(directory: Path, *statements: str) -> None:
    with closing(sqlite3.connect(directory / "source.db")) as database, database:
        for statement in statements:
            database.execute(statement)


async def with_history(world: World, directory: Path) -> list[KeyChange]:
    """Key 7 is read, and read anew, changed, with each run: a poll that starts truncates."""
    values = ", ".join(f"({number}, 'first')" for number in range(KEYS))
    execute(directory, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            f"INSERT INTO t VALUES {values}")  # fmt: skip
    await world.run("source")
    execute(directory, "UPDATE t SET v = 'second' WHERE id = 7")
    await world.run("source")
    execute(directory, "DELETE FROM t WHERE id = 7")
    await world.run("source")
    return await history(world, "t", "7")


async def history(world: World, table: str, key: str) -> list[KeyChange]:
    stored = await stored_schema(world.log, world.loaded.name, table)
    keys = await key_bytes(world.log, stored, key)
    return [each async for each in key_history(world.log, stored, keys)]


def told(changes: Sequence[KeyChange]) -> list[tuple[str, Any]]:
    return [(each.operation, each.row and each.row["v"]) for each in changes]


def test_a_history_has_every_change_and_every_truncate(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        return await with_history(world, tmp_path)

    found = tell(tmp_path, PIPELINE, story)

    assert told(found) == [
        ("t", None), ("r", "first"), ("t", None), ("r", "second"), ("t", None),
    ]  # fmt: skip
    assert len({each.partition for each in found}) == 1, "a key has one partition"
    assert [each.offset for each in found] == sorted(each.offset for each in found)
    assert all(each.at and each.committed_ms > 0 for each in found)


def test_the_newest_is_searched_for_from_the_end_in_growing_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "WINDOW_OFFSETS", 3)

    async def story(world: World) -> Any:
        changes = await with_history(world, tmp_path)
        stored = await stored_schema(world.log, "copy", "t")
        keys = await key_bytes(world.log, stored, "7")
        newest = await newest_change(world.log, stored.topic, keys, ends=None)
        other = await key_bytes(world.log, stored, "12345")
        never = [each async for each in key_history(world.log, stored, other)]
        then_ms = changes[3].committed_ms
        as_of = parse_as_of(time_text(then_ms), now_ms=then_ms)
        partitions = [TopicPartition(stored.topic, number) for number in range(3)]
        before = await find_cut_point(world.log, "copy", as_of, partitions)
        then = await newest_change(world.log, stored.topic, keys, ends=before.ends)
        return newest, then, never

    newest, then, never = tell(tmp_path, PIPELINE, story)

    assert (newest.operation, newest.row) == ("t", None)
    assert then.row["v"] == "second"
    assert {each.operation for each in never} == {"t"}


def test_keys_of_several_columns_are_written_in_several_ways(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        execute(tmp_path, "CREATE TABLE v (a INTEGER, b TEXT, v TEXT)",
                "INSERT INTO v VALUES (1, 'x', 'one'), (1, 'y', 'other')")  # fmt: skip
        await world.run("source")
        ways = ("1,x", "a=1,b=x", '{"a": 1, "b": "x"}', '[1, "x"]')
        return [told(await history(world, "v", way)) for way in ways]

    found = tell(tmp_path, PIPELINE, story)

    assert found == [[("t", None), ("r", "one")]] * 4


def test_keys_of_text_may_be_empty_or_look_like_json(tmp_path: Path) -> None:
    keys = ("", "[draft]", "{", "{7}")

    async def story(world: World) -> Any:
        values = ", ".join(f"('{key}', '{key}!')" for key in keys)
        execute(tmp_path, "CREATE TABLE t (id TEXT PRIMARY KEY, v TEXT)",
                f"INSERT INTO t VALUES {values}")  # fmt: skip
        await world.run("source")
        return [told(await history(world, "t", key)) for key in keys]

    found = tell(tmp_path, PIPELINE, story)

    assert found == [[("t", None), ("r", f"{key}!")] for key in keys]


@pytest.mark.parametrize("given", ["x", "1,2", "{", ""])
def test_text_that_is_no_key_is_refused_without_being_quoted(tmp_path: Path, given: str) -> None:
    async def story(world: World) -> Any:
        execute(tmp_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
                "INSERT INTO t VALUES (1, 'x')")  # fmt: skip
        await world.run("source")
        with pytest.raises(ConfigError) as refused:
            await history(world, "t", given)
        return refused.value

    error = tell(tmp_path, PIPELINE, story)

    assert error.problem in (
        "the key is not a value of its column's type", "the text is not a key of the table",
    )  # fmt: skip


def test_the_newest_state_is_answered_over_http(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        await with_history(world, tmp_path)
        board = StatusBoard(world.clock)
        board(StateChanged("copy", "source", "", TaskState.RUNNING))
        answering = RequestAnswer(board, ReportStream(), world.log, world.clock, refuse)
        api = HttpApi(answering, token="token-of-this-test")
        owner = LockHolder(await api.start(), "token-of-this-test")
        try:
            there = await asyncio.to_thread(owner.ask, "GET", "/pipelines/copy/rows/t/8")
            gone = await asyncio.to_thread(owner.ask, "GET", "/pipelines/copy/rows/t/7")
            with pytest.raises(HeadwaterError) as refused:
                await asyncio.to_thread(owner.ask, "GET", "/pipelines/copy/rows/t/x")
        finally:
            await api.stop()
        return there, gone, refused.value

    there, gone, refused = tell(tmp_path, PIPELINE, story)

    assert (there["table"], there["row"]) == ("t", {"id": 8, "v": "first"})
    assert (gone["op"], gone["row"]) == ("t", None)
    assert "not a value of its column's type" in refused.problem


async def refuse(body: bytes) -> dict[str, object]:
    raise AssertionError("nobody hands pipelines over here")


def test_the_command_shows_the_row_and_its_history(tmp_path: Path, headwater: Any) -> None:
    async def story(world: World) -> None:
        await with_history(world, tmp_path)

    tell(tmp_path, PIPELINE, story)
    file = tmp_path / "pipeline.yaml"

    row = headwater("rows", "copy/t", "8", "-f", file)
    past = headwater("rows", "copy/t", "7", "--history", "-f", file, "--json")
    never = headwater("rows", "copy/t", "8", "--as-of", "2001-01-01", "-f", file)

    assert (row.code, row.data) == (0, '{"id": 8, "v": "first"}\n')
    changes = past.envelope["data"]["changes"]
    assert [each["op"] for each in changes] == ["t", "r", "t", "r", "t"]
    assert changes[3]["row"] == {"id": 7, "v": "second"}
    assert never.code == 4
    assert "the oldest possible is" in never.remarks
