"""Metrics are declared once, documented, and read by Prometheus."""

import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.reports import GaugesRead, RemarksMade, RowsMoved, TableVerified
from headwater.pipelines.watching.metrics import METRICS, exposition
from headwater.pipelines.watching.status import StatusBoard
from tests.fakes import SimulatedClock
from tests.pipelines.watching.test_progress import shop

LABELS = ("pipeline", "task", "table", "state")


def samples_of(snapshot: Any) -> dict[str, dict[tuple[str, ...], float]]:
    text = exposition(snapshot).decode()
    return {
        sample.name: {
            tuple(each.labels[label] for label in LABELS if label in each.labels): each.value
            for each in family.samples
            if each.name == sample.name
        }
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_say_what_status_says() -> None:
    found = samples_of(shop())

    assert found["headwater_rows_total"]["shop", "sql", "public.orders"] == 18_400
    assert found["headwater_lag_seconds"]["shop", "sql", "public.orders"] == 2.1
    assert found["headwater_task_lag_records"] == {("shop", "sql"): 12_400}
    assert found["headwater_task_state"]["shop", "sql", "running"] == 1
    assert found["headwater_task_state"]["shop", "sql", "paused"] == 0
    assert found["headwater_quarantined_tables"] == {("shop",): 1}
    assert found["headwater_dead_letters_total"]["shop", "sql", "public.items"] == 7
    assert found["headwater_snapshot_ratio"]["shop", "source", "public.orders"] == 1


def test_an_offline_partition_is_there_and_goes_when_it_is_back() -> None:
    board = StatusBoard(SimulatedClock())
    board.offline = lambda: {TopicPartition("shop.orders-x", 3): "a batch is damaged"}
    text = exposition(board.snapshot()).decode()
    board.offline = dict

    labels = 'partition="3",topic="shop.orders-x"'
    assert f"headwater_log_partition_offline{{{labels}}} 1.0" in text
    assert "headwater_log_partition_offline{" not in exposition(board.snapshot()).decode()


def test_unknown_values_are_left_out() -> None:
    found = samples_of(shop())

    assert ("shop", "sql", "public.items") not in found["headwater_lag_seconds"]


def test_a_process_without_pipelines_has_metrics_too() -> None:
    found = samples_of(StatusBoard(SimulatedClock(5_000)).snapshot())

    assert found == {
        "headwater_start_timestamp_seconds": {(): 5},
        "headwater_log_problem": {(): 0},
    }


def test_every_metric_that_is_declared_can_be_there_and_no_other() -> None:
    found = samples_of(shop(is_damaged=True)).keys() | samples_of(lake()).keys()
    found |= samples_of(verified()).keys()

    assert found == {spec.name for spec in METRICS}


def lake() -> Any:
    """A sink that keeps tables in files."""
    board = StatusBoard(SimulatedClock())
    board(GaugesRead("shop", "spark", "small_files public.orders", 3, 40))
    return board.snapshot()


def verified(differing: int = 0) -> Any:
    """A table that was compared, over a log whose disk is known."""
    board = StatusBoard(SimulatedClock(90_000))
    board.disk = lambda: (3, 10)
    board(TableVerified("shop", "verify", "public.orders", 60_000, differing, 9, "source,sql", ""))
    board(GaugesRead("shop", "verify", "verify_due_ms", 120_000, None))
    return board.snapshot()


def test_a_comparison_says_when_it_was_and_whether_all_was_equal() -> None:
    found, different = samples_of(verified()), samples_of(verified(differing=2))

    assert found["headwater_verified_timestamp_seconds"] == {("shop", "public.orders"): 60}
    assert found["headwater_verified_equal"] == {("shop", "public.orders"): 1}
    assert found["headwater_verify_due_timestamp_seconds"] == {("shop", "verify"): 120}
    assert different["headwater_verified_equal"] == {("shop", "public.orders"): 0}


def test_the_disk_of_the_log_says_how_much_is_free() -> None:
    found = samples_of(verified())

    assert found["headwater_log_disk_free_bytes"] == {(): 3}
    assert found["headwater_log_disk_size_bytes"] == {(): 10}


def test_a_table_that_is_left_out_counts_once() -> None:
    board = StatusBoard(SimulatedClock())
    for name in ("rights", "key"):
        board(RemarksMade("shop", "source", name, "it has none", "", ["public.audit"]))

    assert samples_of(board.snapshot())["headwater_left_out_tables"] == {("shop",): 1}


def test_a_table_of_a_lake_says_how_its_files_are() -> None:
    found = samples_of(lake())

    assert found["headwater_table_files"] == {("shop", "spark", "public.orders"): 40}
    assert found["headwater_table_small_files"] == {("shop", "spark", "public.orders"): 3}


def test_names_follow_the_rules_of_prometheus() -> None:
    for spec in METRICS:
        assert re.fullmatch(r"headwater_[a-z_]+", spec.name)
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert spec.meaning.endswith(".")


def test_labels_may_hold_anything() -> None:
    board = StatusBoard(SimulatedClock())

    board(RowsMoved("shop", "sql", 'a"b\\c\nd', 1, 1, 1, 1))

    assert samples_of(board.snapshot())["headwater_rows_total"] == {("shop", "sql", 'a"b\\c\nd'): 1}
