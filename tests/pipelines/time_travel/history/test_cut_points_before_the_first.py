"""Before a table's rows were read for the first time nothing is known of it, nor told."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.time_travel.history.as_of import parse_as_of
from headwater.pipelines.time_travel.history.cut_points import begun_at, find_cut_point
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

ORDERS, ITEMS, NOTES = (
    schema_of(f"public.{name}", id=pa.int64()) for name in ["orders", "items", "notes"]
)
NOON_US = 1_700_000_000_000_000 // 3_600_000_000 * 3_600_000_000
HOUR_US = 3_600_000_000
NOW_MS = NOON_US // 1_000 + 10 * HOUR_US // 1_000
FIRST = TopicPartition("shop.public.orders", 0)
LATER = TopicPartition("shop.public.items", 0)
MADE = TopicPartition("shop.public.notes", 0)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    """The source's place is told before its rows are read, a table is added two hours later, and
    one is made in the source after that."""
    with served_log(tmp_path_factory.mktemp("log")) as served:
        for number, changes in enumerate(
            [
                [],
                [changes_of(ORDERS, ("r", {"id": 1}), ("r", {"id": 2}), committed_us=NOON_US)],
                [changes_of(ORDERS, ("d", {"id": 1}), committed_us=NOON_US + HOUR_US)],
                [changes_of(ITEMS, ("r", {"id": 7}), committed_us=NOON_US + 2 * HOUR_US)],
                [changes_of(NOTES, ("c", {"id": 9}), committed_us=NOON_US + 3 * HOUR_US)],
            ]
        ):
            served.write([replace(each, commits=str(number)) for each in changes])
        yield served


def end(served: ServedLog, place: TopicPartition, text: str) -> int:
    as_of = parse_as_of(text, now_ms=NOW_MS)
    cut_point = served.run(lambda: find_cut_point(served.log, "shop", as_of, [place]))
    return cut_point.ends[place]


@pytest.mark.slow
def test_a_time_before_the_first_row_is_refused(served: ServedLog) -> None:
    with pytest.raises(PositionLost, match="the log has no source commit") as refused:
        end(served, FIRST, "2023-11-14T21:00")

    assert "the oldest possible is 2023-11-14T22:00:00" in refused.value.hint
    assert end(served, FIRST, "2023-11-14T22:00") == 3
    assert end(served, FIRST, "stream=3") == 6


@pytest.mark.slow
def test_an_added_table_has_no_cut_points_before_its_rows_were_read(
    served: ServedLog,
) -> None:
    for text in ("2023-11-14T23:30", "stream=3"):
        with pytest.raises(PositionLost, match="first read after") as refused:
            end(served, LATER, text)
        assert "the oldest possible is 2023-11-15T00:00:00" in refused.value.hint

    assert end(served, LATER, "2023-11-15T00:00") == 2


def test_a_table_that_was_not_there_was_empty(served: ServedLog) -> None:
    assert end(served, MADE, "2023-11-15T00:30") == 0
    assert end(served, MADE, "2023-11-15T01:00") == 2


def test_a_history_may_begin_before_its_first_commit(served: ServedLog) -> None:
    def begins(text: str) -> int:
        told = begun_at(served.log, "shop", text, [LATER], now_ms=NOW_MS, note=lambda _: None)
        return served.run(lambda: told)[LATER]

    assert begins("2023-11-14T21:00") == begins("stream=3") == begins("earliest") == 0
    assert begins("2023-11-15T00:00") == 2
