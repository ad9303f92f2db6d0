"""The commands that look at pipelines and steer them do what they say, running or at rest."""

from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa
import pytest

from headwater.connectors.source import CONTROL, REFUSED
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.commands import control
from headwater.pipelines.dead_letters.dead_letter import dead_letter_topic
from headwater.pipelines.journal.commits import (
    commits_home,
    encode_positions,
    load_positions,
    positions_home,
)
from headwater.pipelines.journal.control import read_desired
from headwater.pipelines.journal.internal_topics import internal_topics
from headwater.pipelines.journal.inventory import leavings_of, pipelines_in, schemas_of
from headwater.pipelines.journal.schemas import StoredSchema, encode_schema, schemas_home
from headwater.pipelines.reports import (
    OffsetsApplied,
    RemarksMade,
    RowsMoved,
    StateChanged,
    TaskState,
)
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater, Ran
from tests.pipelines.running.owner import OwnerThread, owning

T = TypeVar("T")
ORDERS = "public.orders"
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Shop:
    """A pipeline with one table that has run for a while, and does."""

    owner: OwnerThread
    name: str
    headwater: Headwater

    @property
    def topic(self) -> str:
        return f"{self.name}.{ORDERS}"

    def run(self, *arguments: object) -> Ran:
        """A command on this log."""
        place = "--log" if arguments[0] == "drop" else "--data"
        return self.headwater(*arguments, place, self.owner.data)

    def ask(self, question: Callable[..., Coroutine[Any, Any, T]]) -> T:
        return self.owner.do(question(self.owner.log, self.name))

    def start(self) -> None:
        board = self.owner.board
        for task in ("source", "sql"):
            board(StateChanged(self.name, task, "", TaskState.RUNNING))
        board(RowsMoved(self.name, "source", ORDERS, 40, 4_000, NOW_MS, NOW_MS + 20))
        board(RowsMoved(self.name, "sql", ORDERS, 40, 4_000, NOW_MS, NOW_MS + 90))
        board(OffsetsApplied(self.name, "source", {"stream": "0/1A"}))

    def pause(self) -> None:
        self.owner.board(StateChanged(self.name, "source", "", TaskState.PAUSED))

    def end(self) -> None:
        self.owner.board.forget(self.name)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnerThread]:
    with owning(tmp_path_factory.mktemp("owner") / "data") as found:
        found.do(make_topics(found.log))
        yield found


@pytest.fixture
def shop(owner: OwnerThread, headwater: Headwater) -> Iterator[Shop]:
    """Under a name of its own, since all of them share one log."""
    found = Shop(owner, f"shop-{uuid4().hex[:8]}", headwater)
    owner.do(fill(owner.log, found.name))
    found.start()
    yield found
    found.end()


async def make_topics(log: Log) -> None:
    for topic in internal_topics(history_ms=60_000):
        await log.ensure_topic(topic)


async def fill(log: Log, name: str) -> None:
    """What a pipeline leaves in the log."""
    topic = f"{name}.{ORDERS}"
    await log.ensure_topic(dead_letter_topic(name))
    await log.ensure_topic(TopicSettings(name=topic))
    await log.append(
        positions_home(name),
        encode_positions(name, {"stream": "0/1A", "chunk/1": "done"}, now_ms=NOW_MS),
    )
    key = Column("id", pa.int64(), is_nullable=False)
    for id, column in ((1, Column("n", pa.int32())), (2, Column("total", pa.string()))):
        schema = TableSchema(TableId("public", "orders"), (key, column), ("id",))
        stored = StoredSchema(name, topic, id, schema, WireSettings(), {"stream": "0/1"}, NOW_MS)
        await log.append(schemas_home(topic), encode_schema(stored))
    await log.commit_offsets(f"headwater.{name}.sql", {TopicPartition(topic, 0): 0})


def test_status_is_one_screen(shop: Shop) -> None:
    ran = shop.run("status")

    assert ran.code == exit_codes.OK
    first, *_ = ran.data.splitlines()
    assert first.startswith(f"PIPELINE {shop.name}   running   1 table")
    (line,) = [line for line in ran.data.splitlines() if line.startswith(ORDERS)]
    assert "streaming" in line and "90 ms" in line


def test_status_is_data_for_programs(shop: Shop) -> None:
    ran = shop.run("status", shop.name, "--json")

    found = ran.envelope["data"]["pipelines"][shop.name]
    assert found["tables"][ORDERS]["tasks"]["sql"]["rows"] == 40


def test_positions_are_shown_when_asked_for(shop: Shop) -> None:
    plain, full = shop.run("status"), shop.run("status", "--positions")

    assert "0/1A" not in plain.data
    assert f"POSITIONS {shop.name} source\n  stream  0/1A\n" in full.data


def test_a_pipeline_that_does_not_run_is_named(shop: Shop) -> None:
    ran = shop.run("status", "shpo")

    assert ran.code == exit_codes.INVALID
    assert f"running pipelines: {shop.name}" in ran.remarks


def test_a_log_that_nobody_runs_names_the_command_that_starts_it(
    headwater: Headwater, tmp_path: Path
) -> None:
    with owning(tmp_path / "data", has_pipelines=False):
        broker_alone = headwater("status", "--data", tmp_path / "data")
    nobody = headwater("status", "--data", tmp_path / "data")
    nowhere = headwater("status", "--data", tmp_path / "elsewhere")

    for ran in (broker_alone, nobody, nowhere):
        assert ran.code == exit_codes.UNREACHABLE
        assert "headwater run" in ran.remarks


def test_a_table_is_paused_and_resumed_by_its_bare_name(shop: Shop) -> None:
    paused = shop.run("pause", f"{shop.name}/orders", "--json")
    while_paused = shop.ask(read_desired)
    whole = shop.run("resume", shop.name)
    still = shop.ask(read_desired)
    resumed = shop.run("resume", f"{shop.name}/{ORDERS}")

    assert paused.envelope["data"]["table"] == ORDERS
    assert while_paused.paused_tables == still.paused_tables == {ORDERS}
    assert f"still paused by themselves: {ORDERS}" in whole.remarks
    assert resumed.code == exit_codes.OK
    assert shop.ask(read_desired).paused_tables == frozenset()


def test_an_unknown_pipeline_or_table_is_not_paused(shop: Shop) -> None:
    pipeline = shop.run("pause", "shpo")
    table = shop.run("pause", f"{shop.name}/ordres")
    empty = shop.run("pause", f"{shop.name}/")

    assert pipeline.code == table.code == empty.code == exit_codes.INVALID
    assert "the log has no pipeline of this name" in pipeline.remarks
    assert shop.name in pipeline.remarks.partition("hint:")[2]
    assert "the pipeline does not have this table" in table.remarks
    assert "the path has no table" in empty.remarks
    assert not shop.ask(read_desired).is_paused


def test_a_pipeline_that_has_only_just_started_can_be_paused(shop: Shop) -> None:
    young = Shop(shop.owner, f"young-{shop.name}", shop.headwater)
    young.start()

    ran = young.run("pause", young.name)
    young.end()

    assert ran.code == exit_codes.OK
    assert young.ask(read_desired).is_paused


def test_offsets_show_both_ends(shop: Shop) -> None:
    ran = shop.run("offsets", "show", shop.name, "--json")

    found = ran.envelope["data"]
    assert found["source"] == {"stream": "0/1A", "chunk/1": "done"}
    (applied,) = found["sinks"]["sql"]
    assert (applied["topic"], applied["offset"], applied["lag"]) == (shop.topic, 0, 0)


def test_a_source_at_work_is_not_moved(shop: Shop) -> None:
    moved = shop.run("offsets", "set", shop.name, "stream=0/0", "--yes")
    reset = shop.run("offsets", "reset", shop.name, "--yes")

    for ran in (moved, reset):
        assert ran.code == exit_codes.INVALID
        assert f"headwater pause {shop.name}" in ran.remarks
    assert shop.ask(load_positions)["stream"] == "0/1A"


def test_a_paused_source_is_moved_part_by_part(shop: Shop) -> None:
    shop.pause()

    asked = shop.run("offsets", "set", shop.name, "stream=0/0")
    moved = shop.run("offsets", "set", shop.name, "stream=0/0", "--yes")
    unknown = shop.run("offsets", "reset", shop.name, "--part", "no", "--yes")
    after = shop.ask(load_positions)
    shop.run("offsets", "reset", shop.name, "--yes")

    assert asked.code == unknown.code == exit_codes.INVALID
    assert moved.data == "stream: 0/1A -> 0/0\n"
    assert after == {"stream": "0/0", "chunk/1": "done"}
    assert shop.ask(load_positions) == {}


@pytest.mark.slow
def test_a_table_has_a_history_and_differences(shop: Shop) -> None:
    target = f"{shop.name}/orders"

    history = shop.run("schema", "history", target)
    diff = shop.run("schema", "diff", target, "--json")
    same = shop.run("schema", "diff", target, "2", "2")
    missing = shop.run("schema", "diff", target, "9")

    lines = history.data.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "1", "2"]
    assert "- n int32; + total string" in lines[2]
    changes = [(each["what"], each["column"]) for each in diff.envelope["data"]["changes"]]
    assert changes == [("dropped", "n"), ("added", "total")]
    assert "nothing differs" in same.data
    assert missing.code == exit_codes.INVALID


def test_a_running_pipeline_is_not_dropped(shop: Shop) -> None:
    ran = shop.run("drop", shop.name, "--yes")

    assert ran.code == exit_codes.INVALID
    assert "the pipeline is running" in ran.remarks


@pytest.mark.slow
def test_a_dropped_pipeline_leaves_nothing_in_the_log(shop: Shop) -> None:
    shop.run("pause", f"{shop.name}/orders")
    shop.end()

    asked = shop.run("drop", shop.name)
    ran = shop.run("drop", shop.name, "--yes", "--json")

    assert asked.code == exit_codes.INVALID and "add --yes" in asked.remarks
    assert ran.code == exit_codes.OK
    removed = ran.envelope["data"]["removed"]
    assert {f"topic {shop.topic}", f"group headwater.{shop.name}.sql"} <= set(removed)
    assert shop.owner.do(leavings_of(shop.owner.log, shop.name)).is_empty
    assert shop.ask(schemas_of) == {}
    assert shop.name not in shop.owner.do(pipelines_in(shop.owner.log))
    assert shop.ask(load_positions) == {}
    assert shop.ask(read_desired).paused_tables == frozenset()


def test_a_successor_of_a_dropped_pipeline_begins_behind_its_commits(shop: Shop) -> None:
    home, log = commits_home(shop.name), shop.owner.log
    shop.owner.do(log.append(home, encode_positions("other", {"a": "b"}, now_ms=NOW_MS)))
    end = shop.owner.do(log.bounds([home]))[home].end
    shop.end()

    shop.run("drop", shop.name, "--yes")

    assert shop.ask(read_desired).commits_from == end
    assert shop.ask(read_desired).controls() == []


@pytest.mark.slow
def test_a_log_at_rest_is_looked_at_and_steered_all_the_same(
    headwater: Headwater, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with owning(data, has_pipelines=False) as owner:
        owner.do(make_topics(owner.log))
        owner.do(fill(owner.log, "shop"))

    shown = headwater("offsets", "show", "shop", "--json", "--data", data)
    paused = headwater("pause", "shop", "--data", data)
    history = headwater("schema", "history", "shop/orders", "--data", data)
    dropped = headwater("drop", "shop", "--yes", "--log", data)
    again = headwater("drop", "shop", "--yes", "--log", data)

    assert shown.envelope["data"]["source"]["stream"] == "0/1A"
    assert paused.code == history.code == dropped.code == exit_codes.OK
    assert f"topic shop.{ORDERS}" in dropped.data
    assert f"removed topic shop.{ORDERS}" not in again.data


def test_a_directory_that_holds_no_log_is_not_made_into_one(
    headwater: Headwater, tmp_path: Path
) -> None:
    ran = headwater("offsets", "show", "shop", "--data", tmp_path / "typo")

    assert ran.code == exit_codes.UNREACHABLE
    assert not (tmp_path / "typo").exists()


def test_the_log_is_found_by_the_pipeline_file(
    headwater: Headwater, owner: OwnerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "pipeline: shop\nsource: {type: files, path: '${env:NOT_SET_HERE}'}\n"
        f"log: {{path: {owner.data}}}\nsink: {{type: console}}\n"
    )

    by_file = headwater("topics", "ls", "--internal", "-f", file)
    by_directory = headwater("status", "-f", tmp_path)
    monkeypatch.chdir(tmp_path)
    by_place = headwater("topics", "ls", "--internal")
    twice = headwater("status", "-f", file, "--bootstrap", "127.0.0.1:1")

    assert by_file.code == by_directory.code == by_place.code == exit_codes.OK
    assert "__headwater_positions" in by_file.data and by_file.data == by_place.data
    assert twice.code == exit_codes.INVALID and "named twice" in twice.remarks


def test_a_file_whose_log_section_is_wrong_is_said_with_its_place(
    headwater: Headwater, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("pipeline: shop\nlog: {pth: data}\n")

    ran = headwater("status", "-f", file)

    assert ran.code == exit_codes.INVALID
    assert "pipeline.yaml:2:" in ran.remarks and "did you mean" in ran.remarks


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands do not wait for the answer of a source that is none."""
    monkeypatch.setattr(control, "ANSWER_S", 0)


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("action", ["start", "pause", "resume", "stop"])
def test_the_reading_of_a_table_is_wished_for_in_the_log(shop: Shop, action: str) -> None:
    ran = shop.run("snapshot", action, f"{shop.name}/orders", "--json")

    [signal] = shop.ask(read_desired).controls()
    assert (signal.kind, str(signal.table), signal.options) == (
        "snapshot",
        ORDERS,
        {"action": action},
    )
    assert ran.envelope["data"]["id"] == signal.id


@pytest.mark.usefixtures("no_patience")
def test_the_reading_may_be_of_some_rows_only(shop: Shop) -> None:
    shop.run("snapshot", "start", f"{shop.name}/orders", "--where", "id > 7")

    [signal] = shop.ask(read_desired).controls()
    assert signal.options["where"] == "id > 7"


@contextmanager
def answering(shop: Shop, answer: str) -> Iterator[None]:
    """The source says so of the first wish that comes."""

    def reply() -> None:
        while not (signals := shop.ask(read_desired).controls()):
            continue
        if answer == REFUSED:
            said = ("it is being read already", "stop it")
            shop.owner.board(RemarksMade(shop.name, "source", "snapshot", *said))
        shop.owner.board(OffsetsApplied(shop.name, "source", {f"{CONTROL}{signals[0].id}": answer}))

    with ThreadPoolExecutor(1) as thread:
        told = thread.submit(reply)
        yield
        told.result()


def test_a_reading_that_the_source_takes_up_is_said_to_be(shop: Shop) -> None:
    with answering(shop, "start"):
        ran = shop.run("snapshot", "start", f"{shop.name}/orders")

    assert ran.code == exit_codes.OK
    assert "will be read" in ran.data and not ran.remarks


def test_a_reading_that_the_source_refuses_is_an_error(shop: Shop) -> None:
    with answering(shop, REFUSED):
        ran = shop.run("snapshot", "start", f"{shop.name}/orders")

    assert ran.code == exit_codes.UNREACHABLE and not ran.data
    assert "it is being read already" in ran.remarks and "stop it" in ran.remarks


@pytest.mark.usefixtures("no_patience")
def test_a_source_that_has_not_answered_is_not_said_to_read(shop: Shop) -> None:
    silent = shop.run("snapshot", "start", f"{shop.name}/orders")
    shop.end()
    at_rest = shop.run("snapshot", "start", f"{shop.name}/orders")

    assert silent.code == at_rest.code == exit_codes.OK
    assert "has not accepted the signal yet" in silent.remarks
    assert f"; headwater status {shop.name} shows" in silent.remarks
    assert "receives the signal at its next run" in at_rest.remarks
