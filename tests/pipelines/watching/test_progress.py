"""Progress is seen at a glance: it fits any window, shows what needs somebody first, and drives no
terminal crazy."""

import asyncio
import io
import logging
from typing import Any

import pytest
from rich.console import Console

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.reports import (
    DeadLettersAdded,
    GaugesRead,
    OffsetsApplied,
    ReadProgress,
    RowsMoved,
    StateChanged,
    TaskState,
)
from headwater.pipelines.terminal import exit_codes
from headwater.pipelines.terminal.quantities import count_text, duration_text, rate_text, size_text
from headwater.pipelines.watching.progress import ProgressView, draw_status, is_drawable, log_lines
from headwater.pipelines.watching.status import StatusBoard
from headwater.pipelines.watching.status_screen import plain, screen, shorten
from tests.fakes import SimulatedClock
from tests.pipelines.conftest import Headwater

START_MS = 1_700_000_000_000


def shop(*, tables: int = 0, is_damaged: bool = False) -> Any:
    """What is known of a pipeline that has a bit of everything."""
    clock = SimulatedClock(START_MS)
    board = StatusBoard(clock)
    for unit in ("source", "sql"):
        board(StateChanged("shop", unit, "", TaskState.STARTING))
        board(StateChanged("shop", unit, "", TaskState.RUNNING))
    for second in range(10):
        now_ms = clock.now_ms()
        board(RowsMoved("shop", "source", "public.orders", 1_840, 570_000, now_ms - 30, now_ms))
        board(
            RowsMoved("shop", "sql", "public.orders", 1_840, 540_000, now_ms - 30, now_ms + 2_070)
        )
        read = 500_000 + second * 96_000
        board(ReadProgress("shop", "source", "public.events", read, 2_000_000, None, None, False))
        for number in range(tables):
            name = f"public.a_table_with_a_rather_long_name_{number:04}"
            board(RowsMoved("shop", "sql", name, 1, 100, now_ms, now_ms))
        clock.advance(1_000)
    board(ReadProgress("shop", "source", "public.orders", 41_200_000, None, None, None, True))
    reason = "total: numeric -> text\n  hint: headwater resume shop/public.invoices"
    board(StateChanged("shop", "sql", "public.invoices", TaskState.QUARANTINED, reason))
    board(DeadLettersAdded("shop", "sql", "public.items", 7, "no number"))
    board(OffsetsApplied("shop", "sql", {"shop.public.orders-0": "1000"}))
    board(GaugesRead("shop", "source", "retained_wal_bytes", 312 << 20, 20 << 30))
    board.know_ends({"shop.public.orders-0": 13_401})
    if is_damaged:
        board.offline = lambda: {TopicPartition("shop.public.orders", 0): "a batch is damaged"}
    return board.snapshot()


def text(snapshot: Any, **choices: Any) -> str:
    return "\n".join(map(plain, screen(snapshot, **choices)))


def test_the_screen_says_what_runs_how_far_what_is_left_and_what_is_wrong() -> None:
    shown = text(shop(), width=80)

    assert (
        shown
        == """\
PIPELINE shop   running   4 tables   for 10.0 s
  source  running        18.4k rows    1,840 rows/s  lag 30 ms
          retained WAL 312.0 MiB of 20.0 GiB
  sql     running        18.4k rows    1,840 rows/s  lag 2.1 s, 12.4k records
TABLE            STATE         SNAPSHOT                    LAG   ROWS/S     DLQ
public.invoices  quarantined   -                             -        0       0
  └ total: numeric -> text
    hint: headwater resume shop/public.invoices
public.events    snapshotting  ━━━━━━──── 68% 7.4 s          -        0       0
public.orders    streaming     done 41.2M                2.1 s    1,840       0
public.items     streaming     -                             -        0       7
  └ last dead letter: no number"""
    )


def test_figures_of_many_tables_are_one_line_and_none_where_there_is_nothing_to_say() -> None:
    clock = SimulatedClock()
    board = StatusBoard(clock)
    board(StateChanged("shop", "spark", "", TaskState.RUNNING))
    for table in range(20):
        board(GaugesRead("shop", "spark", f"small_files public.t{table}", 0, 4))

    quiet = text(board.snapshot(), width=80)
    board(GaugesRead("shop", "spark", "small_files public.t7", 3, 4))
    shown = text(board.snapshot(), width=80)

    assert "small" not in quiet
    assert [line.strip() for line in shown.splitlines() if "small" in line] == [
        "small files 3 of 80"
    ]


def test_the_bar_is_made_of_plain_signs_without_unicode() -> None:
    shown = text(shop(), width=80, has_unicode=False)

    assert "######.... 68%" in shown
    assert shown.isascii()


@pytest.mark.parametrize("width", [40, 80, 120, 300])
def test_no_line_is_wider_than_the_window(width: int) -> None:
    lines = text(shop(tables=5), width=width).splitlines()

    assert max(map(len, lines)) <= width


@pytest.mark.slow
@pytest.mark.parametrize("height", [10, 24, 50])
def test_the_tables_that_need_somebody_are_on_the_screen_of_a_thousand(height: int) -> None:
    lines = text(shop(tables=1_000), width=80, lines_max=height).splitlines()

    assert len(lines) <= height
    assert any(line.startswith("public.invo") for line in lines)
    assert "more tables" in lines[-1]


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    assert shorten("public.customers_of_the_shop_2026", 20) == "public…the_shop_2026"
    assert shorten("public.orders", 20) == "public.orders"


def test_nothing_running_is_said() -> None:
    assert text(StatusBoard(SimulatedClock()).snapshot(), width=80) == "no pipeline is running here"


def test_foreign_names_and_reasons_cannot_steer_the_terminal() -> None:
    board = StatusBoard(SimulatedClock(START_MS))
    board(StateChanged("shop", "sql", "a\x1b[2Jb", TaskState.QUARANTINED, "\x1b]0;owned\x07"))

    assert "\x1b" not in text(board.snapshot(), width=120)
    assert "\x1b" not in "".join(log_lines(board.snapshot()))


def test_a_log_line_says_it_all_in_one_line() -> None:
    (line,) = log_lines(shop())

    assert line == (
        "shop running; 4 tables; 1,840 rows/s in; 1,840 rows/s into sql, lag 2.1 s; "
        "reading 1 table, 1.4M rows, 68%, 7.4 s left; "
        "quarantined public.invoices: total: numeric -> text; 7 dead letters"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_same_screen_in_colours(width: int) -> None:
    terminal = io.StringIO()
    console = Console(
        file=terminal, force_terminal=True, width=width, height=24, color_system="256"
    )
    plain_terminal = io.StringIO()
    colourless = Console(file=plain_terminal, width=width, height=24, no_color=True)

    console.print(draw_status(shop(), console))
    colourless.print(draw_status(shop(), colourless))

    assert "\x1b[31mquarantined" in terminal.getvalue()
    assert "\x1b" not in plain_terminal.getvalue()
    assert max(map(len, plain_terminal.getvalue().splitlines())) <= width


class Terminal(io.StringIO):
    """As rich and we see one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.slow
async def test_log_lines_scroll_by_above_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, seen = Terminal(), asyncio.Event()
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    rounds = 0

    async def look() -> Any:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            logging.getLogger("headwater.pipelines").warning("something happened")
            seen.set()
        return shop()

    watching = asyncio.ensure_future(ProgressView(look).watch(terminal))
    await seen.wait()
    watching.cancel()
    await asyncio.wait([watching])
    logging.getLogger().removeHandler(handler)

    shown = terminal.getvalue()
    assert "something happened\n" in shown
    assert shown.index("something happened") < shown.rindex("PIPELINE")
    assert handler.stream is terminal, "logging is left as it was"
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h"), "the cursor is given back"


async def test_progress_without_a_terminal_is_one_line_per_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "headwater.pipelines.watching.progress")
    enough, rounds, stream = asyncio.Event(), 0, io.StringIO()

    async def look() -> Any:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            enough.set()
        return shop()

    watching = asyncio.ensure_future(ProgressView(look, interval_ms=1).watch(stream))
    await enough.wait()
    watching.cancel()
    await asyncio.wait([watching])

    assert stream.getvalue() == ""
    assert all(line.startswith("shop running; 4 tables") for line in caplog.messages)
    assert len(caplog.messages) >= 2


def test_a_dumb_terminal_is_not_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not is_drawable(Terminal())

    monkeypatch.setenv("TERM", "xterm")
    assert is_drawable(Terminal())
    assert not is_drawable(io.StringIO())


@pytest.mark.parametrize(
    ("number", "shown"),
    [(None, "-"), (0, "0"), (9_999, "9,999"), (96_400, "96.4k"), (41_200_000, "41.2M")],
)
def test_counts_are_short(number: int | None, shown: str) -> None:
    assert count_text(number) == shown


def test_a_trickle_is_not_nothing() -> None:
    assert (rate_text(0.3), rate_text(0), rate_text(1_840.4)) == ("0.3", "0", "1,840")


@pytest.mark.parametrize(
    ("duration_ms", "shown"),
    [
        (None, "-"),
        (0, "0 ms"),
        (850, "850 ms"),
        (2_100, "2.1 s"),
        (59_990, "1 min"),
        (1_080_000, "18 min"),
        (3_599_000, "1.0 h"),
        (11_520_000, "3.2 h"),
        (200_000_000, "2.3 d"),
    ],
)
def test_durations_have_one_unit(duration_ms: int | None, shown: str) -> None:
    assert duration_text(duration_ms) == shown


def test_sizes_have_binary_units() -> None:
    assert (size_text(312 << 20), size_text(100), size_text(None)) == ("312.0 MiB", "100 B", "-")


def test_the_interval_of_progress_is_a_duration(headwater: Headwater) -> None:
    for given in ("soon", "0s", "10"):
        ran = headwater("run", "--log-every", given)
        assert ran.code == exit_codes.INVALID
        assert "--log-every" in ran.remarks
