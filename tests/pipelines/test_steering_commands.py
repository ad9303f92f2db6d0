"""The commands that look at pipelines and steer them do what they say, running or at rest."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from core_log.embedded import EmbeddedLog
from core_log.log import Log, TopicPartition
from core_log.rows.settings import WireSettings
from core_log.settings import TopicSettings
from core_log.table_schema import Column, TableId, TableSchema
from pipelines import exit_codes
from pipelines.commits import commits_home
from pipelines.control import desired
from pipelines.dead_letters import dead_letter_topic
from pipelines.internal_topics import internal_topics
from pipelines.inventory import leavings_of
from pipelines.positions import encode_positions, load_positions, positions_home
from pipelines.reports import Moved, State, StateChanged, Stood
from pipelines.schemas import StoredSchema, encode_schema, schemas_home
from tests.pipelines.conftest import Headwater
from tests.pipelines.owning import OwnerThread, owning

ORDERS, TOPIC = "public.orders", "shop.public.orders"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[OwnerThread]:
    """A pipeline with two tables that has run for a while, and does."""
    with owning(tmp_path / "data") as found:
        found.do(fill(found.log))
        run(found)
        yield found


def run(owner: OwnerThread) -> None:
    for unit in ("source", "sql"):
        owner.board(StateChanged("shop", unit, "", State.RUNNING))
    owner.board(Moved("shop", "source", ORDERS, 40, 4_000, NOW_MS, NOW_MS + 20))
    owner.board(Moved("shop", "sql", ORDERS, 40, 4_000, NOW_MS, NOW_MS + 90))
    owner.board(Stood("shop", "source", {"stream": "0/1A"}))


async def fill(log: EmbeddedLog) -> None:
    """What a pipeline leaves in the log."""
    for topic in [*internal_topics(history_ms=60_000), dead_letter_topic("shop")]:
        await log.ensure_topic(topic)
    for batch in encode_positions("shop", {"stream": "0/1A", "chunk/1": "done"}, now_ms=NOW_MS):
        await log.append(positions_home("shop"), batch)
    await add_schema(log, 1, Column("id", pa.int64(), is_nullable=False), Column("n", pa.int32()))
    await add_schema(
        log, 2, Column("id", pa.int64(), is_nullable=False), Column("total", pa.string())
    )
    await log.ensure_topic(TopicSettings(name=TOPIC))
    await log.commit_offsets("headwater.shop.sql", {TopicPartition(TOPIC, 0): 0})


async def add_schema(log: Log, id: int, *columns: Column) -> None:
    schema = TableSchema(TableId("public", "orders"), columns, ("id",))
    stored = StoredSchema("shop", TOPIC, id, schema, WireSettings(), {"stream": "0/1"}, NOW_MS)
    for batch in encode_schema(stored):
        await log.append(schemas_home(TOPIC), batch)


def test_status_is_one_screen(headwater: Headwater, owner: OwnerThread) -> None:
    ran = headwater("status", "--data", owner.data)

    assert ran.code == exit_codes.OK
    first, *_ = ran.data.splitlines()
    assert first.startswith("PIPELINE shop   running   1 table")
    (line,) = [line for line in ran.data.splitlines() if line.startswith(ORDERS)]
    assert "streaming" in line and "90 ms" in line


def test_status_is_data_for_programs(headwater: Headwater, owner: OwnerThread) -> None:
    ran = headwater("status", "shop", "--json", "--data", owner.data)

    found = ran.envelope["data"]["pipelines"]["shop"]
    assert found["tables"][ORDERS]["units"]["sql"]["rows"] == 40


def test_positions_are_shown_when_asked_for(headwater: Headwater, owner: OwnerThread) -> None:
    plain = headwater("status", "--data", owner.data)
    ran = headwater("status", "--positions", "--data", owner.data)

    assert "0/1A" not in plain.data
    assert "POSITIONS shop source\n  stream  0/1A\n" in ran.data


def test_a_pipeline_that_does_not_run_is_named(headwater: Headwater, owner: OwnerThread) -> None:
    ran = headwater("status", "shpo", "--data", owner.data)

    assert ran.code == exit_codes.INVALID
    assert "there is shop" in ran.remarks


def test_where_nobody_runs_the_command_that_starts_it_is_said(
    headwater: Headwater, tmp_path: Path
) -> None:
    with owning(tmp_path / "data", has_pipelines=False):
        broker_alone = headwater("status", "--data", tmp_path / "data")
    nobody = headwater("status", "--data", tmp_path / "data")
    nowhere = headwater("status", "--data", tmp_path / "elsewhere")

    for ran in (broker_alone, nobody, nowhere):
        assert ran.code == exit_codes.UNREACHABLE
        assert "headwater run" in ran.remarks


def test_a_table_is_paused_and_resumed_by_its_bare_name(
    headwater: Headwater, owner: OwnerThread
) -> None:
    paused = headwater("pause", "shop/orders", "--json", "--data", owner.data)
    while_paused = owner.do(desired(owner.log, "shop"))
    whole = headwater("resume", "shop", "--data", owner.data)
    still = owner.do(desired(owner.log, "shop"))
    resumed = headwater("resume", "shop/public.orders", "--data", owner.data)

    assert paused.envelope["data"]["table"] == ORDERS
    assert while_paused.paused_tables == still.paused_tables == {ORDERS}
    assert f"still paused by themselves: {ORDERS}" in whole.remarks
    assert resumed.code == exit_codes.OK
    assert owner.do(desired(owner.log, "shop")).paused_tables == frozenset()


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("shpo", "this log knows no pipeline of that name"),
        ("shop/ordres", "the pipeline has no such table"),
    ],
)
def test_what_cannot_be_meant_is_not_paused(
    headwater: Headwater, owner: OwnerThread, target: str, problem: str
) -> None:
    ran = headwater("pause", target, "--data", owner.data)

    assert ran.code == exit_codes.INVALID
    assert problem in ran.remarks and "shop" in ran.remarks.partition("hint:")[2]


def test_offsets_show_both_ends(headwater: Headwater, owner: OwnerThread) -> None:
    ran = headwater("offsets", "show", "shop", "--json", "--data", owner.data)

    found = ran.envelope["data"]
    assert found["source"] == {"stream": "0/1A", "chunk/1": "done"}
    (stand,) = found["sinks"]["sql"]
    assert (stand["topic"], stand["offset"], stand["lag"]) == (TOPIC, 0, 0)


def test_a_source_at_work_is_not_moved(headwater: Headwater, owner: OwnerThread) -> None:
    moved = headwater("offsets", "set", "shop", "stream=0/0", "--yes", "--data", owner.data)
    reset = headwater("offsets", "reset", "shop", "--yes", "--data", owner.data)

    for ran in (moved, reset):
        assert ran.code == exit_codes.INVALID
        assert "headwater pause shop" in ran.remarks
    assert owner.do(load_positions(owner.log, "shop"))["stream"] == "0/1A"


def test_a_paused_source_is_moved_part_by_part(headwater: Headwater, owner: OwnerThread) -> None:
    owner.board(StateChanged("shop", "source", "", State.PAUSED))

    asked = headwater("offsets", "set", "shop", "stream=0/0", "--data", owner.data)
    moved = headwater("offsets", "set", "shop", "stream=0/0", "--yes", "--data", owner.data)
    unknown = headwater("offsets", "reset", "shop", "--part", "no", "--yes", "--data", owner.data)

    assert asked.code == unknown.code == exit_codes.INVALID
    assert moved.data == "stream: 0/1A -> 0/0\n"
    assert owner.do(load_positions(owner.log, "shop")) == {"stream": "0/0", "chunk/1": "done"}

    headwater("offsets", "reset", "shop", "--yes", "--data", owner.data)
    assert owner.do(load_positions(owner.log, "shop")) == {}


def test_a_table_has_a_history_and_differences(headwater: Headwater, owner: OwnerThread) -> None:
    history = headwater("schema", "history", "shop/orders", "--data", owner.data)
    diff = headwater("schema", "diff", "shop/orders", "--json", "--data", owner.data)
    same = headwater("schema", "diff", "shop/orders", "2", "2", "--data", owner.data)
    missing = headwater("schema", "diff", "shop/orders", "9", "--data", owner.data)

    lines = history.data.splitlines()
    assert [line.split()[0] for line in lines] == ["ID", "1", "2"]
    assert "- n int32; + total string" in lines[2]
    changes = [(each["what"], each["column"]) for each in diff.envelope["data"]["changes"]]
    assert changes == [("dropped", "n"), ("added", "total")]
    assert "nothing differs" in same.data
    assert missing.code == exit_codes.INVALID


def test_a_running_pipeline_is_not_dropped(headwater: Headwater, owner: OwnerThread) -> None:
    ran = headwater("drop", "shop", "--yes", "--log", owner.data)

    assert ran.code == exit_codes.INVALID
    assert "the pipeline is running" in ran.remarks


def test_nothing_is_left_in_the_log_of_a_dropped_pipeline(
    headwater: Headwater, owner: OwnerThread
) -> None:
    headwater("pause", "shop/orders", "--data", owner.data)
    owner.board.forget("shop")

    asked = headwater("drop", "shop", "--log", owner.data)
    ran = headwater("drop", "shop", "--yes", "--json", "--log", owner.data)
    again = headwater("drop", "shop", "--yes", "--log", owner.data)

    assert asked.code == exit_codes.INVALID and "add --yes" in asked.remarks
    assert ran.code == exit_codes.OK
    removed = ran.envelope["data"]["removed"]
    assert f"topic {TOPIC}" in removed and "group headwater.shop.sql" in removed
    log = owner.log
    assert owner.do(leavings_of(log, "shop")).is_empty
    assert owner.do(load_positions(log, "shop")) == {}
    assert owner.do(desired(log, "shop")).paused_tables == frozenset()
    assert again.code == exit_codes.OK or "knows no pipeline" in again.remarks


def test_a_successor_of_a_dropped_pipeline_begins_behind_its_commits(
    headwater: Headwater, owner: OwnerThread
) -> None:
    home = commits_home("shop")
    for batch in encode_positions("other", {"a": "b"}, now_ms=NOW_MS):
        owner.do(owner.log.append(home, batch))
    owner.board.forget("shop")

    headwater("drop", "shop", "--yes", "--log", owner.data)

    assert owner.do(desired(owner.log, "shop")).commits_from == 1
    assert owner.do(desired(owner.log, "shop")).controls() == []


def test_a_log_at_rest_is_looked_at_and_steered_all_the_same(
    headwater: Headwater, tmp_path: Path
) -> None:
    with owning(tmp_path / "data") as owner:
        owner.do(fill(owner.log))
    data = tmp_path / "data"

    shown = headwater("offsets", "show", "shop", "--json", "--data", data)
    paused = headwater("pause", "shop", "--data", data)
    history = headwater("schema", "history", "shop/orders", "--data", data)
    dropped = headwater("drop", "shop", "--yes", "--log", data)

    assert shown.envelope["data"]["source"]["stream"] == "0/1A"
    assert paused.code == history.code == dropped.code == exit_codes.OK
    with owning(data) as owner:
        assert owner.do(leavings_of(owner.log, "shop")).is_empty
        assert not owner.do(desired(owner.log, "shop")).is_paused


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
        f"log: {{path: {owner.data.name}}}\nsink: {{type: console}}\n"
    )

    by_file = headwater("status", "-f", file)
    by_directory = headwater("topics", "ls", "-f", tmp_path)
    monkeypatch.chdir(tmp_path)
    by_place = headwater("status")
    twice = headwater("status", "-f", file, "--data", owner.data)

    assert by_file.code == by_directory.code == by_place.code == exit_codes.OK
    assert by_file.data == by_place.data
    assert twice.code == exit_codes.INVALID and "named twice" in twice.remarks


def test_a_file_whose_log_section_is_wrong_is_said_with_its_place(
    headwater: Headwater, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text("pipeline: shop\nlog: {pth: data}\n")

    ran = headwater("status", "-f", file)

    assert ran.code == exit_codes.INVALID
    assert "pipeline.yaml:2:" in ran.remarks and "did you mean" in ran.remarks
