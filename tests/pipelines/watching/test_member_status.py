"""What several runs say of their own tasks becomes one picture, in which each task has its run."""

from typing import Any

from headwater.pipelines.reports import (
    OffsetsApplied,
    Report,
    RowsMoved,
    StateChanged,
    TableKnown,
    TaskState,
)
from headwater.pipelines.watching.member_status import MemberStatus, RunsNow, distinct_names, only
from headwater.pipelines.watching.status import StatusBoard
from headwater.pipelines.watching.status_screen import plain, screen
from tests.fakes import SimulatedClock

SOURCE, LAKE = ("shop", "source"), ("shop", "lake")


def a_board(*reports: Report) -> StatusBoard:
    board = StatusBoard(SimulatedClock())
    board.shared = lambda own: own
    for each in reports:
        board(each)
    return board


def a_picture(board: StatusBoard, here: Any, others: Any, **members: str) -> Any:
    status: Any = MemberStatus(
        None,  # type: ignore[arg-type]
        board,
        lambda: RunsNow("me", members, 3, here, (SOURCE, LAKE)),
        SimulatedClock(),
    )
    status._others = others
    return status.merge(board.own_snapshot())


def test_each_task_is_shown_with_the_run_that_has_it() -> None:
    mine = a_board(
        StateChanged(*SOURCE, "", TaskState.RUNNING), RowsMoved(*SOURCE, "orders", 7, 70, 1, 1)
    )
    theirs = a_board(
        TableKnown(*LAKE, "orders"),
        StateChanged(*LAKE, "", TaskState.QUARANTINED, "no room"),
        OffsetsApplied(*LAKE, {"orders-0": "5"}),
    )
    said = {"generation": 3, "pipelines": theirs.own_snapshot()["pipelines"]}

    shown = a_picture(mine, {SOURCE}, {"other": said}, me="a", other="b")

    shop = shown["pipelines"]["shop"]
    assert shown["members"] == ["a", "b"]
    assert {name: each["member"] for name, each in shop["tasks"].items()} == {
        "source": "a",
        "lake": "b",
    }
    assert (shop["state"], shop["reason"]) == ("quarantined", "no room")
    assert shop["tables"]["orders"]["tasks"].keys() == {"source", "lake"}
    lines = [plain(each) for each in screen(shown, width=120)]
    assert any(line.endswith("on b") for line in lines)


def test_a_task_that_nobody_has_yet_is_shown_as_such() -> None:
    mine = a_board(StateChanged(*SOURCE, "", TaskState.RUNNING))

    shown = a_picture(mine, {SOURCE}, {}, me="a")

    lake = shown["pipelines"]["shop"]["tasks"]["lake"]
    assert (lake["state"], lake["member"]) == ("starting", "")


def test_the_newest_generation_counts_where_two_runs_name_one_task() -> None:
    former = a_board(StateChanged(*LAKE, "", TaskState.STOPPED))
    newer = a_board(StateChanged(*LAKE, "", TaskState.RUNNING))
    others = {
        "x": {"generation": 2, "pipelines": former.own_snapshot()["pipelines"]},
        "y": {"generation": 3, "pipelines": newer.own_snapshot()["pipelines"]},
    }

    shown = a_picture(a_board(), (), others, me="a", x="b", y="c")

    lake = shown["pipelines"]["shop"]["tasks"]["lake"]
    assert (lake["state"], lake["member"]) == ("running", "c")


def test_a_task_that_has_left_is_no_part_of_what_a_run_says() -> None:
    board = a_board(
        StateChanged(*SOURCE, "", TaskState.STOPPED), StateChanged(*LAKE, "", TaskState.RUNNING)
    )

    assert only(board.own_snapshot()["pipelines"], {LAKE})["shop"]["tasks"].keys() == {"lake"}


def test_runs_on_one_host_have_names_of_their_own() -> None:
    names = distinct_names({"abcdef99": "host", "12345699": "host", "x": "other"})

    assert names == {"abcdef99": "host/abcdef", "12345699": "host/123456", "x": "other"}
