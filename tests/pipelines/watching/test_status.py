"""The status board says what is so: how far, how fast, how far behind, and what is wrong."""

from typing import Any

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.reports import (
    DeadLettersAdded,
    GaugesRead,
    OffsetsApplied,
    ReadProgress,
    RemarksMade,
    Report,
    RowsMoved,
    StateChanged,
    TableKnown,
    TableVerified,
    TaskState,
)
from headwater.pipelines.watching.metrics import exposition
from headwater.pipelines.watching.progress import log_lines
from headwater.pipelines.watching.status import StatusBoard
from headwater.pipelines.watching.status_screen import plain, screen
from scripts.status_fields import FIELDS
from tests.fakes import SimulatedClock

ORDERS = "public.orders"
START_MS = 1_700_000_000_000


class Watched:
    """A board, its clock, and reports in few words."""

    def __init__(self) -> None:
        self.clock = SimulatedClock(START_MS)
        self.board = StatusBoard(self.clock)

    def say(self, *reports: Report) -> None:
        for report in reports:
            self.board(report)

    def task_is(self, task: str, state: TaskState, reason: str = "") -> None:
        self.say(StateChanged("shop", task, "", state, reason))

    def table_is(self, task: str, state: TaskState, reason: str = "") -> None:
        self.say(StateChanged("shop", task, ORDERS, state, reason))

    def moved(self, task: str, *, committed_ms: int, rows: int = 10, table: str = ORDERS) -> None:
        now_ms = self.clock.now_ms()
        self.say(RowsMoved("shop", task, table, rows, rows * 100, committed_ms, now_ms))

    def read(self, rows: int, expected: int | None, *, is_done: bool = False) -> None:
        self.say(ReadProgress("shop", "source", ORDERS, rows, expected, None, None, is_done))

    def verified(self, differing: int, problem: str = "") -> None:
        at_ms = self.clock.now_ms()
        self.say(
            TableVerified("shop", "verify", ORDERS, at_ms, differing, 50, "source,sql", problem)
        )

    @property
    def pipeline(self) -> Any:
        snapshot: Any = self.board.snapshot()
        return snapshot["pipelines"]["shop"]

    @property
    def orders(self) -> Any:
        return self.pipeline["tables"][ORDERS]


@pytest.fixture
def watched() -> Watched:
    """A pipeline whose source and one sink run."""
    found = Watched()
    for task in ("source", "sql"):
        found.task_is(task, TaskState.STARTING)
        found.task_is(task, TaskState.RUNNING)
    return found


def test_nothing_is_claimed_of_pipelines_that_have_said_nothing() -> None:
    board = StatusBoard(SimulatedClock(START_MS))

    assert board.snapshot() == {
        "version": 1,
        "at_ms": START_MS,
        "started_ms": START_MS,
        "is_stopping": False,
        "log_problem": "",
        "log_disk": None,
        "offline_partitions": {},
        "pipelines": {},
    }


def test_every_field_is_documented_and_every_documented_field_is_there(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.read(5, 10)
    watched.say(GaugesRead("shop", "source", "retained_wal_bytes", 1 << 20, None))
    watched.say(RemarksMade("shop", "source", "publication", "it lacks a table", "ALTER it"))
    watched.verified(0)
    watched.board.disk = lambda: (1, 2)

    nullable = {"pipelines.*.tables.*.snapshot", "pipelines.*.tables.*.verified"}
    assert set(paths_of(watched.board.snapshot())) == set(FIELDS) - nullable


def test_a_table_that_the_source_leaves_out_is_not_shown_as_streaming(watched: Watched) -> None:
    def remark(problem: str) -> RemarksMade:
        return RemarksMade("shop", "source", "refused tables", problem, "", (ORDERS,))

    watched.moved("source", committed_ms=START_MS)
    watched.say(remark("its mask names no column"))
    assert (watched.orders["state"], watched.orders["reason"]) == (
        "left out",
        "its mask names no column",
    )
    watched.say(StateChanged("shop", "source", ORDERS, TaskState.REREADING, "waits"))
    assert watched.orders["state"] == "left out", "it is not read before it may enter"
    watched.task_is("source", TaskState.RETRYING)
    assert watched.orders["state"] == "retrying"
    watched.task_is("source", TaskState.RUNNING)
    watched.say(StateChanged("shop", "source", ORDERS, TaskState.QUARANTINED, "held"))
    assert watched.orders["state"] == "quarantined"
    watched.say(StateChanged("shop", "source", ORDERS, TaskState.RUNNING))

    watched.say(remark(""))
    assert watched.orders["state"] == "streaming"


def test_a_table_that_is_read_again_says_so_with_its_reason_and_what_is_left(
    watched: Watched,
) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.read(10, 10, is_done=True)

    watched.say(StateChanged("shop", "source", ORDERS, TaskState.REREADING, "a column was renamed"))

    assert watched.orders["state"] == "re-reading"
    assert watched.orders["reason"] == "a column was renamed"
    assert not watched.orders["snapshot"]  # the first reading is not this one
    watched.read(5, 10)
    assert watched.orders["snapshot"]["fraction"] == 0.5
    assert "headwater_rereading_tables" in exposition(watched.board.snapshot()).decode()
    watched.task_is("source", TaskState.RETRYING)
    assert watched.orders["state"] == "retrying"  # nothing is read meanwhile
    watched.task_is("source", TaskState.RUNNING)
    watched.say(StateChanged("shop", "source", ORDERS, TaskState.RUNNING))
    watched.read(10, 10, is_done=True)
    assert watched.orders["state"] == "streaming"


def paths_of(value: Any, path: str = "") -> list[str]:
    if not isinstance(value, dict) or path.endswith(("positions", "offline_partitions")):
        return [path]
    named = path.rpartition(".")[2] in ("pipelines", "tasks", "tables", "gauges", "remarks")
    return [
        found
        for name, inner in value.items()
        for found in paths_of(inner, f"{path}.{'*' if named else name}".lstrip("."))
    ]


def test_a_remark_is_shown_with_its_cure_until_it_is_taken_back(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.say(RemarksMade("shop", "source", "publication", "it lacks a table", "ALTER it"))
    shown = [plain(each) for each in screen(watched.board.snapshot(), width=80)]
    watched.say(RemarksMade("shop", "source", "publication", "", ""))

    assert "  └ it lacks a table" in shown and "    hint: ALTER it" in shown
    assert not watched.pipeline["tasks"]["source"]["remarks"]


def test_the_last_comparison_is_told_of_a_table_of_which_nothing_has_moved_since(
    watched: Watched,
) -> None:
    watched.say(StateChanged("shop", "source", "", TaskState.RUNNING))
    watched.verified(3)

    assert watched.orders["state"] == "streaming"
    assert watched.orders["verified"]["differing"] == 3
    assert watched.orders["lag_ms"] is None


def test_a_table_of_which_nothing_has_moved_since_the_start_is_there(watched: Watched) -> None:
    watched.say(StateChanged("shop", "source", "", TaskState.RUNNING))
    watched.say(TableKnown("shop", "source", ORDERS))

    assert watched.orders["state"] == "streaming"
    assert watched.orders["verified"] is None


def test_the_last_comparison_of_a_table_is_told_with_when_it_was(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    before = watched.orders["verified"]
    watched.verified(3)
    watched.clock.advance(60_000)
    differing = watched.orders["verified"]
    lines = [plain(each) for each in screen(watched.board.snapshot(), width=140)]
    watched.verified(0)

    assert before is None
    assert (differing["is_equal"], differing["differing"]) == (False, 3)
    assert differing["at_ms"] == START_MS
    assert any("1 min ago, 3 differ" in line for line in lines), lines
    assert watched.orders["verified"]["is_equal"]
    assert "verify" not in watched.pipeline["tasks"]


def test_rates_are_those_of_the_last_ten_seconds(watched: Watched) -> None:
    for _ in range(20):
        watched.moved("source", committed_ms=watched.clock.now_ms(), rows=100)
        watched.clock.advance(1_000)

    busy = watched.pipeline["tasks"]["source"]
    watched.clock.advance(60_000)
    quiet = watched.pipeline["tasks"]["source"]

    assert busy["rows"] == quiet["rows"] == 2_000
    assert busy["rows_per_s"] == pytest.approx(100, rel=0.2)
    assert busy["bytes_per_s"] == pytest.approx(10_000, rel=0.2)
    assert (quiet["rows_per_s"], quiet["bytes_per_s"]) == (0, 0)


def test_a_young_rate_is_not_divided_by_time_that_has_not_passed(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS, rows=500)
    watched.clock.advance(2_000)

    assert watched.orders["rows_per_s"] == 250


def test_a_table_at_rest_is_not_behind(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.clock.advance(40)
    watched.moved("sql", committed_ms=START_MS)
    at_once = watched.orders["lag_ms"]
    watched.clock.advance(3_600_000)

    assert at_once == 40
    assert watched.orders["lag_ms"] == 0
    assert watched.pipeline["tasks"]["sql"]["lag_ms"] == 0


def test_a_sink_that_stands_still_with_records_to_come_is_not_at_rest(watched: Watched) -> None:
    watched.moved("sql", committed_ms=START_MS - 500)
    watched.say(OffsetsApplied("shop", "sql", {"shop.orders-0": "10"}))
    watched.board.know_ends({"shop.orders-0": 100})
    watched.clock.advance(3_600_000)

    assert watched.orders["lag_ms"] == 500


def test_lag_is_not_claimed_before_anything_went_through(watched: Watched) -> None:
    watched.read(5, 10)

    assert watched.pipeline["tasks"]["source"]["lag_ms"] is None
    assert watched.orders["lag_ms"] is None


def test_lag_is_the_age_of_the_oldest_change_that_waits(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.clock.advance(3_600_000)
    first_ms = watched.clock.now_ms()
    watched.moved("source", committed_ms=first_ms)
    watched.clock.advance(5_000)
    watched.moved("source", committed_ms=first_ms + 5_000)

    waiting = watched.orders["lag_ms"]
    watched.moved("sql", committed_ms=first_ms)
    half_way = watched.orders["lag_ms"]
    watched.moved("sql", committed_ms=first_ms + 5_000)
    caught_up = watched.orders["lag_ms"]

    assert (waiting, half_way, caught_up) == (5_000, 5_000, 0)


def test_a_table_that_was_made_anew_from_the_log_is_not_behind(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.clock.advance(60_000)
    watched.moved("source", committed_ms=watched.clock.now_ms())
    watched.table_is("sql", TaskState.REBUILDING, "rebuilt from the log")
    watched.clock.advance(5_000)
    before = watched.orders["lag_ms"]

    watched.table_is("sql", TaskState.RUNNING)
    watched.clock.advance(60_000)

    assert (before, watched.orders["lag_ms"]) == (5_000, 0)


def test_a_sink_whose_first_table_was_made_anew_from_the_log_is_not_behind(
    watched: Watched,
) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.table_is("sql", TaskState.REBUILDING, "rebuilt from the log")
    watched.clock.advance(5_000)
    before = watched.pipeline["tasks"]["sql"]["lag_ms"]

    watched.table_is("sql", TaskState.RUNNING)
    watched.clock.advance(60_000)

    assert before == 5_000
    assert watched.pipeline["tasks"]["sql"]["lag_ms"] is None
    watched.moved("source", committed_ms=watched.clock.now_ms(), table="public.items")
    watched.clock.advance(1_000)
    assert watched.pipeline["tasks"]["sql"]["lag_ms"] == 1_000, "another table waits"


def test_a_sink_that_has_not_begun_is_behind_all_the_same(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.clock.advance(5_000)
    waiting = watched.pipeline["tasks"]["sql"]["lag_ms"]

    watched.say(OffsetsApplied("shop", "sql", {"shop.orders-0": "10"}))

    assert waiting == 5_000
    assert watched.pipeline["tasks"]["sql"]["lag_ms"] is None, "it left out all there was"


def test_lag_grows_while_a_sink_is_down(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.task_is("sql", TaskState.RETRYING, "nobody answers")
    watched.clock.advance(30_000)

    assert watched.orders["lag_ms"] == 30_000
    assert watched.orders["state"] == watched.pipeline["state"] == "retrying"
    assert watched.pipeline["reason"] == "nobody answers"
    assert watched.pipeline["tasks"]["sql"]["retries"] == 1


def test_a_table_that_a_route_renames_has_its_own_line(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.clock.advance(70)
    watched.moved("sql", committed_ms=START_MS, table="crm.orders")
    watched.clock.advance(1_000)

    renamed = watched.pipeline["tables"]["crm.orders"]

    assert renamed["lag_ms"] == 70
    assert renamed["rows_per_s"] > 0
    assert set(renamed["tasks"]) == {"sql"}


def test_the_lag_of_a_sink_is_counted_in_records(watched: Watched) -> None:
    watched.say(OffsetsApplied("shop", "source", {"stream": "0/1A"}))
    watched.say(OffsetsApplied("shop", "sql", {"shop.orders-0": "10", "shop.items-0": "5"}))
    unknown = watched.pipeline["tasks"]["sql"]["lag_records"]

    watched.board.know_ends({"shop.orders-0": 111, "shop.items-0": 6})  # with their markers

    assert watched.board.partitions() == {"shop.orders-0", "shop.items-0"}
    assert unknown is None
    assert watched.pipeline["tasks"]["sql"]["lag_records"] == 100
    assert watched.pipeline["tasks"]["source"]["lag_records"] is None


def test_a_position_is_what_was_said_last_of_each_part(watched: Watched) -> None:
    watched.say(OffsetsApplied("shop", "source", {"file/a": "1", "file/b": "1"}))
    watched.say(OffsetsApplied("shop", "source", {"file/b": "2"}))
    joined = watched.pipeline["tasks"]["source"]["positions"]

    watched.task_is("source", TaskState.STARTING)

    assert joined == {"file/a": "1", "file/b": "2"}
    assert watched.pipeline["tasks"]["source"]["positions"] == {}


def test_a_position_of_a_million_parts_is_kept_within_bounds(watched: Watched) -> None:
    for number in range(3_000):
        watched.say(OffsetsApplied("shop", "source", {f"file/{number}": "0"}))

    kept = watched.pipeline["tasks"]["source"]["positions"]

    assert len(kept) == 1_000
    assert "file/2999" in kept


def test_a_snapshot_shows_how_much_and_how_long_yet(watched: Watched) -> None:
    for rows in range(0, 60_001, 6_000):
        watched.read(rows, 100_000)
        watched.clock.advance(1_000)

    reading = watched.orders["snapshot"]
    assert watched.orders["state"] == "snapshotting"
    assert reading["fraction"] == 0.6
    assert reading["eta_ms"] == pytest.approx(40_000 / 6_000 * 1_000, rel=0.2)

    watched.read(101_000, 100_000, is_done=True)
    assert watched.orders["state"] == "streaming"
    assert watched.orders["snapshot"]["fraction"] == 1
    assert watched.orders["snapshot"]["eta_ms"] == 0


def test_an_estimate_that_was_too_low_never_claims_the_end(watched: Watched) -> None:
    watched.read(150_000, 100_000)

    assert watched.orders["snapshot"]["fraction"] < 1
    assert watched.orders["snapshot"]["is_done"] is False


def test_a_snapshot_of_unknown_size_has_no_percentage(watched: Watched) -> None:
    watched.read(5_000, None)

    reading = watched.orders["snapshot"]
    assert (reading["rows"], reading["fraction"], reading["eta_ms"]) == (5_000, None, None)


def test_a_snapshot_that_begins_again_starts_from_nothing(watched: Watched) -> None:
    watched.read(90_000, 100_000)
    watched.clock.advance(1_000)
    watched.read(1_000, 100_000)

    assert watched.orders["snapshot"]["fraction"] == 0.01


def test_a_quarantined_table_says_why_while_the_others_go_on(watched: Watched) -> None:
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS, table="public.items")
    watched.table_is("sql", TaskState.QUARANTINED, "total: numeric -> text")

    assert watched.orders["state"] == "quarantined"
    assert watched.orders["reason"] == "total: numeric -> text"
    assert watched.orders["tasks"]["source"]["state"] == "running"
    assert watched.pipeline["tables"]["public.items"]["state"] == "streaming"
    assert watched.pipeline["state"] == "running"


def test_a_table_that_goes_on_forgets_why_it_stood_still(watched: Watched) -> None:
    watched.table_is("sql", TaskState.QUARANTINED, "too wide")
    watched.table_is("sql", TaskState.RUNNING)

    assert (watched.orders["state"], watched.orders["reason"]) == ("streaming", "")


def test_a_sink_that_starts_again_says_anew_what_is_wrong(watched: Watched) -> None:
    watched.table_is("sql", TaskState.QUARANTINED, "too wide")
    watched.task_is("sql", TaskState.STARTING)
    watched.task_is("sql", TaskState.RUNNING)

    assert watched.orders["state"] == "streaming"


def test_dead_letters_are_counted_with_the_last_reason(watched: Watched) -> None:
    watched.say(DeadLettersAdded("shop", "sql", ORDERS, 3, "no number"))
    watched.say(DeadLettersAdded("shop", "sql", ORDERS, 4, "no date"))

    assert watched.orders["dead_letters"] == 7
    assert watched.orders["dead_letter_problem"] == "no date"


@pytest.mark.parametrize(
    ("source", "sink", "both"),
    [
        (TaskState.RUNNING, TaskState.RUNNING, "running"),
        (TaskState.RUNNING, TaskState.QUARANTINED, "quarantined"),
        (TaskState.STARTING, TaskState.RUNNING, "starting"),
        (TaskState.DONE, TaskState.RUNNING, "running"),
        (TaskState.DONE, TaskState.DONE, "done"),
        (TaskState.PAUSED, TaskState.PAUSED, "paused"),
        (TaskState.STOPPED, TaskState.STOPPED, "stopped"),
        (TaskState.RETRYING, TaskState.PAUSED, "retrying"),
    ],
)
def test_a_pipeline_is_as_well_as_its_worst_task(
    source: TaskState, sink: TaskState, both: str
) -> None:
    watched = Watched()
    watched.task_is("source", source)
    watched.task_is("sql", sink)

    assert watched.pipeline["state"] == both


@pytest.mark.parametrize("other_ends_at", [20, 90])
def test_a_newest_record_that_became_a_dead_letter_leaves_no_lag_behind(
    watched: Watched, other_ends_at: int
) -> None:
    """Also where another table of the sink is behind."""
    watched.task_is("source", TaskState.RUNNING)
    watched.task_is("sql", TaskState.RUNNING)
    watched.moved("source", committed_ms=START_MS)
    watched.moved("sql", committed_ms=START_MS)
    watched.moved("source", committed_ms=START_MS + 1)

    watched.say(
        DeadLettersAdded("shop", "sql", ORDERS, 1, "it is no number"),
        OffsetsApplied("shop", "sql", {"shop.orders-0": "10", "shop.users-0": "19"}),
    )
    watched.board.know_ends({"shop.orders-0": 11, "shop.users-0": other_ends_at})
    watched.clock.advance(60_000)

    assert watched.pipeline["tables"][ORDERS]["lag_ms"] == 0


def test_a_disk_that_refuses_stands_above_everything_else(watched: Watched) -> None:
    watched.task_is("source", TaskState.RUNNING)

    watched.board.log_problem = lambda: "the disk refused a write: no space left on device at /data"
    lines = [plain(line) for line in screen(watched.board.snapshot(), width=120)]

    assert lines[0] == "LOG the disk refused a write: no space left on device at /data"


def test_partitions_that_the_disk_fails_stand_above_everything_else_with_their_reasons(
    watched: Watched,
) -> None:
    watched.task_is("source", TaskState.RUNNING)
    reasons = {TopicPartition("shop.orders", index): "a batch is damaged" for index in range(12)}

    watched.board.offline = lambda: reasons
    snapshot = watched.board.snapshot()
    lines = [plain(line) for line in screen(snapshot, width=120)]

    assert snapshot["offline_partitions"]["shop.orders-11"] == "a batch is damaged"
    assert lines[0] == "LOG shop.orders-0 is offline: a batch is damaged"
    assert lines[5] == "LOG 7 more partitions offline; --json shows them"
    assert log_lines(snapshot)[0] == "the log: shop.orders-0 is offline: a batch is damaged"


def test_states_of_hundreds_of_tables_are_counted_and_the_worst_come_first(
    watched: Watched,
) -> None:
    watched.task_is("source", TaskState.RUNNING)
    for number in range(300):
        watched.moved("source", committed_ms=START_MS, table=f"public.t{number}")
    held = StateChanged("shop", "source", "public.t250", TaskState.QUARANTINED, "it is damaged")
    watched.say(held)

    snapshot = watched.board.snapshot()
    few = [plain(line) for line in screen(snapshot, width=120, tables_max=20)]
    every = [plain(line) for line in screen(snapshot, width=120)]

    assert "TABLES   1 quarantined   299 streaming" in few
    rows = [line for line in few if line.startswith("public.")]
    assert rows[0].startswith("public.t250") and len(rows) == 20
    assert few[-1] == "and 280 more tables; --all shows them"
    assert sum(line.startswith("public.") for line in every) == 300
