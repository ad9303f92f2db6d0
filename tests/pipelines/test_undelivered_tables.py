"""`run --once` ends with 0 only if every table of its files was delivered whole (decision D5)."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.pipelines.file.spec import StopAfter
from headwater.pipelines.loops.ingest.unserializable_rows import RejectBudget
from headwater.pipelines.reports import RemarksMade, Report, StateChanged, TableKnown, TaskState
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.watching.status import (
    StatusBoard,
    Undelivered,
    find_undelivered,
    undelivered_lines,
)
from tests.budget import PATIENCE_S
from tests.fakes import SimulatedClock
from tests.pipelines.conftest import Headwater
from tests.pipelines.run_process import start

FILES = """
pipeline: {name}
source: {{type: files, path: ./in/*.csv, table: "{{stem}}", key: id, settle: 0s}}
sink:
  - {{type: sql, name: first, url: "sqlite:///first.db"}}
  - {{type: sql, name: second, url: "sqlite:///second.db"}}
workers: 0
"""


def once(path: Path, *options: str) -> tuple[int, Any, str]:
    """Exit code, envelope and remarks."""
    ran = start("run", path, "--once", "--json", *options)
    out, said = ran.communicate(timeout=PATIENCE_S)
    return ran.returncode, json.loads(out), said


def a_file(directory: Path, name: str = "shop") -> Path:
    (directory / "in").mkdir(exist_ok=True)
    for table in ("orders", "users"):
        (directory / "in" / f"{table}.csv").write_text("id,total\n1,2\n2,3\n")
    path = directory / f"{name}.yaml"
    path.write_text(FILES.format(name=name))
    return path


def somebody_elses(database: Path, table: str) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(f"CREATE TABLE {table} (id TEXT)")
        connection.commit()


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.mark.slow
def test_a_table_that_one_sink_holds_fails_the_run_and_is_named(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    somebody_elses(tmp_path / "second.db", "users")

    code, said, remarks = once(path)

    assert code == exit_codes.DIFFERENT
    assert said["ok"] is False and said["error"]["exit_code"] == exit_codes.DIFFERENT
    missing = [(each["table"], each["task"], each["state"]) for each in said["data"]["undelivered"]]
    assert missing == [("users", "second", "quarantined")]
    assert said["data"]["undelivered"][0]["reason"]
    assert "shop/second: users quarantined: " in remarks
    assert count(tmp_path / "first.db", "users") == count(tmp_path / "second.db", "orders") == 2


@pytest.mark.slow
def test_a_paused_table_fails_the_run_until_it_is_resumed(
    tmp_path: Path, headwater: Headwater
) -> None:
    path = a_file(tmp_path)
    assert once(path)[0] == exit_codes.OK
    assert headwater("pause", "shop/orders", "-f", path).code == exit_codes.OK

    paused = once(path)
    assert headwater("resume", "shop/orders", "-f", path).code == exit_codes.OK
    resumed = once(path)

    assert paused[0] == exit_codes.DIFFERENT
    found = paused[1]["data"]["undelivered"]
    assert [(each["table"], each["task"]) for each in found] == [
        ("orders", "first"),
        ("orders", "second"),
    ]
    assert resumed[0] == exit_codes.OK


@pytest.mark.slow
def test_a_sink_that_is_given_up_fails_the_run_for_all_tables_of_its_pipeline(
    tmp_path: Path,
) -> None:
    a_file(tmp_path, "left")
    a_file(tmp_path, "right")
    right = FILES.format(name="right").replace("first.db", "third.db")
    (tmp_path / "right.yaml").write_text(right.replace("second.db", "no-database.db"))
    (tmp_path / "no-database.db").write_bytes(b"this is no database" * 100)

    code, said, _ = once(tmp_path)

    assert code == exit_codes.DIFFERENT
    missing = {(each["pipeline"], each["task"]) for each in said["data"]["undelivered"]}
    assert missing == {("right", "second")}
    assert {each["table"] for each in said["data"]["undelivered"]} == {"orders", "users"}


@pytest.mark.slow
def test_a_path_without_files_fails_the_run_unless_that_is_allowed(tmp_path: Path) -> None:
    file = a_file(tmp_path)
    file.write_text(file.read_text().replace("./in/*.csv", "./nowhere/*.csv"))

    refused = once(file)
    file.write_text(file.read_text().replace("key: id", "key: id, allow_empty: true"))
    allowed = once(file)

    assert refused[0] == exit_codes.DIFFERENT
    assert "no file matches `path`" in refused[2] and "allow_empty: true" in refused[2]
    assert allowed[0] == exit_codes.OK and allowed[1]["ok"] is True


@pytest.mark.slow
@pytest.mark.parametrize("part", ["source", "sink"])
def test_a_database_file_that_cannot_be_there_fails_the_run_and_is_named(
    tmp_path: Path, part: str
) -> None:
    file, missing = a_file(tmp_path), tmp_path / "nowhere" / "shop.db"
    text = file.read_text()
    if part == "sink":
        file.write_text(text.replace("sqlite:///first.db", f"sqlite:///{missing}"))
    else:
        source = f'source: {{type: sql, url: "sqlite:///{missing}", tables: ["*"]}}'
        [files] = [line for line in text.splitlines() if line.startswith("source:")]
        file.write_text(text.replace(files, source))

    code, said, remarks = once(file)

    assert code == exit_codes.DIFFERENT and said["ok"] is False
    assert str(missing) in remarks and "missing" in remarks
    assert not missing.parent.exists()


@pytest.mark.slow
def test_a_rule_that_does_not_fit_a_table_of_files_holds_that_table_alone(tmp_path: Path) -> None:
    """In the first run and in later ones, until the rule is mended."""
    file = a_file(tmp_path)
    whole = file.read_text()
    rule = "transform: [{{table: users, mask: {{{}: hash}}}}]\n"
    file.write_text(whole + rule.format("totl"))

    first, second = once(file), once(file)
    file.write_text(whole + rule.format("total"))
    mended = once(file)

    for code, said, remarks in (first, second):
        assert code == exit_codes.DIFFERENT
        found = {(each["table"], each["state"]) for each in said["data"]["undelivered"]}
        assert found == {("users", "left out")}
        assert "did you mean total?" in remarks
    assert mended[0] == exit_codes.OK and mended[1]["ok"] is True
    assert count(tmp_path / "first.db", "orders") == count(tmp_path / "first.db", "users") == 2


@pytest.mark.slow
def test_a_name_that_matches_no_table_fails_the_run_and_the_others_are_delivered(
    tmp_path: Path,
) -> None:
    somebody_elses(tmp_path / "shop.db", "orders")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "pipeline: shop\nworkers: 0\nsink: {type: sql, url: 'sqlite:///target.db'}\n"
        "source: {type: sql, url: 'sqlite:///shop.db', tables: [orders, ordres], every: 1m,"
        " keys: {orders: [id]}}\n"
    )

    code, said, _ = once(file)

    assert code == exit_codes.DIFFERENT
    found = said["data"]["undelivered"]
    assert [(each["table"], each["state"]) for each in found] == [("ordres", "left out")]


class Told:
    """A board that has heard all this of a pipeline whose tasks have come to their end."""

    def __init__(self, *reports: Report) -> None:
        self.board = StatusBoard(SimulatedClock())
        for task in ("source", "lake"):
            self.board(StateChanged("shop", task, "", TaskState.RUNNING))
        for table in ("public.orders", "public.users"):
            self.board(TableKnown("shop", "lake", table))
        for each in reports:
            self.board(each)
        for task in ("source", "lake"):
            self.board(StateChanged("shop", task, "", TaskState.DONE))

    @property
    def undelivered(self) -> list[Undelivered]:
        return find_undelivered(self.board.snapshot())


def test_a_run_that_nothing_held_up_has_delivered_everything() -> None:
    told = Told(
        StateChanged("shop", "lake", "public.orders", TaskState.QUARANTINED, "x"),
        StateChanged("shop", "lake", "public.orders", TaskState.RUNNING),
        RemarksMade("shop", "source", "slow", "the server is slow", ""),
    )

    assert told.undelivered == []


@pytest.mark.parametrize("task", ["source", "lake"])
@pytest.mark.parametrize("state", [TaskState.QUARANTINED, TaskState.PAUSED])
def test_a_table_that_is_held_where_ever_it_is_is_undelivered(task: str, state: TaskState) -> None:
    told = Told(StateChanged("shop", task, "public.orders", state, "why"))

    assert told.undelivered == [Undelivered("shop", "public.orders", task, state.value, "why")]


def test_a_table_that_the_source_leaves_out_is_undelivered_with_its_cure() -> None:
    left_out = RemarksMade("shop", "source", "unlogged", "it is unlogged", "ALTER", ["public.tmp"])
    told = Told(left_out)

    assert told.undelivered == [
        Undelivered("shop", "public.tmp", "source", "left out", "it is unlogged; ALTER")
    ]


def test_tables_that_share_a_reason_share_a_line() -> None:
    held = [Undelivered("shop", f"t{n}", "lake", "quarantined", "why\nhint: x") for n in range(25)]

    shown = ", ".join(f"t{n}" for n in range(20))
    assert undelivered_lines(held) == [
        f"shop/lake: {shown} and 5 more tables quarantined: why hint: x"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("bad", "code"), [(2, exit_codes.OK), (3, exit_codes.DIFFERENT)])
def test_dead_letters_of_the_source_count_against_the_threshold_of_the_file(
    tmp_path: Path, bad: int, code: int
) -> None:
    path = a_file(tmp_path)
    path.write_text(path.read_text() + "errors: {dead_letter: {stop_after: {failures: 3}}}\n")
    with (tmp_path / "in" / "users.csv").open("a") as users:
        users.writelines("4,5,6,7\n" for _ in range(bad))

    ended, said, _ = once(path)

    assert ended == code
    named = said["data"].get("undelivered", ())
    found = [(each["table"], each["state"]) for each in named]
    assert found == ([("users", "left out")] if bad == 3 else [])
    assert count(tmp_path / "first.db", "users") == 2


def test_a_source_may_set_rows_aside_up_to_the_threshold_and_one_table_counts_for_itself() -> None:
    budget = RejectBudget("shop", "source", StopAfter(failures=3, of_last=10))

    within = [
        budget.count({"orders": 5}, {"orders": 2}),
        budget.count({"orders": 9}, {}),
        budget.count({}, {"orders": 2}),
        budget.count({}, {"users": 2}),
    ]
    beyond = budget.count({}, {"orders": 1})
    again = budget.count({}, {"orders": 1})
    both = budget.count({}, {"users": 1})

    assert within == [None] * 4 and again is None
    assert beyond is not None and beyond.left_out == ("orders",)
    assert both is not None and both.left_out == ("orders", "users")
