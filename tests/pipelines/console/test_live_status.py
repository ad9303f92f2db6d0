"""The past of rates and lags is bounded, ordered, and says what is unknown."""

from collections.abc import Mapping
from typing import Any

from headwater.pipelines.console.live_status import MINUTE, SECOND, SECONDS_MAX, StatusPast

START_MS = 1_700_000_040_000  # the beginning of a minute
ORDERS = "public.orders"


def status(at_ms: int, rows: float, lag_ms: int | None) -> Mapping[str, Any]:
    task = {"rows_per_s": rows, "bytes_per_s": rows * 10, "lag_ms": lag_ms}
    table = {"rows_per_s": rows, "lag_ms": lag_ms, "tasks": {"source": task, "lake": task}}
    found = {"tasks": {"source": task, "lake": task}, "tables": {ORDERS: table}}
    return {"at_ms": at_ms, "pipelines": {"shop": found}}


def test_seconds_are_kept_for_ten_minutes_oldest_first() -> None:
    past = StatusPast()
    for second in range(SECONDS_MAX + 5):
        past.add(status(START_MS + second * 1_000, float(second), None))

    line = past.lines("shop", "", SECOND)["lake"]

    assert line.at_ms == [START_MS + second * 1_000 for second in range(5, SECONDS_MAX + 5)]
    assert line.rows_per_s == [float(second) for second in range(5, SECONDS_MAX + 5)]
    assert line.bytes_per_s[-1] == (SECONDS_MAX + 4) * 10
    assert set(line.lag_ms) == {None}


def test_a_minute_has_the_mean_of_its_rates_and_its_largest_lag() -> None:
    past = StatusPast()
    for second, (rows, lag_ms) in enumerate([(10.0, 5), (20.0, 700), (30.0, None)]):
        past.add(status(START_MS + second * 1_000, rows, lag_ms))
    past.add(status(START_MS + 60_000, 99.0, 1))

    line = past.lines("shop", ORDERS, MINUTE)[ORDERS]

    assert (line.at_ms, line.rows_per_s, line.lag_ms) == ([START_MS], [20.0], [700])


def test_pipelines_and_tables_are_kept_apart() -> None:
    past = StatusPast()
    past.add(status(START_MS, 1.0, 2))

    assert past.lines("shop", "", SECOND).keys() == {"source", "lake"}
    assert past.lines("other", "", SECOND) == {}
    assert dict(past.newest())[f"shop//{ORDERS}"] == [(START_MS, 1.0, 2)]
