"""A table that is slid to a moment holds what `rows --as-of` says of every key, and a change names
all rows of its transaction."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.console import table_past
from headwater.pipelines.console.hidden_columns import NOTHING_HIDDEN, ShownTable
from headwater.pipelines.console.table_past import (
    ShownChange,
    activity,
    changes_of_key,
    recent_changes,
)
from headwater.pipelines.console.transaction_trace import SinkOfTransaction, applied_by, trace
from headwater.pipelines.journal.schemas import StoredSchema
from headwater.pipelines.time_travel.history.as_of import TimeAsOf
from headwater.pipelines.time_travel.history.cut_points import find_cut_point
from headwater.pipelines.time_travel.history.key_history import (
    key_bytes,
    newest_change,
    stored_schema,
)
from tests.pipelines.pipeline_in_memory import PIPELINE, Change, tables_of
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

KEYS = range(6)
START_MS = 1_750_000_000_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLog]:
    with served_log(tmp_path / "data") as log:
        yield log


def transactions(
    random: Random, count: int, *, goes_back: bool = True
) -> Iterator[tuple[int, Sequence[Change]]]:
    """Commit times, which now and then may go back, and changes of two tables."""
    rows: dict[str, set[int]] = {"orders": set(), "items": set()}
    now_s = 0
    for number in range(count):
        now_s += random.choice([0, 1, 1, 2, -1 if goes_back else 0])
        changes: list[Change] = []
        for place in range(random.randint(1, 4)):
            table, key = random.choice(list(rows)), random.choice(KEYS)
            value = f"{number}.{place}"
            if random.random() < 0.05:
                rows[table].clear()
                changes.append((table, "t", 0, ""))
            elif key not in rows[table]:
                rows[table].add(key)
                changes.append((table, "c", key, value))
            elif random.random() < 0.3:
                rows[table].discard(key)
                changes.append((table, "d", key, ""))
            else:
                changes.append((table, "u", key, value))
        yield now_s, changes


def view_of(stored: StoredSchema) -> ShownTable:
    return NOTHING_HIDDEN.view(stored.pipeline, stored.schema)


def shown_at(changes: Sequence[ShownChange], moment_ms: int, key: str) -> list[str | None] | None:
    """As the page finds it, in words.js."""
    theirs = [each for each in changes if each.key in (None, key)]
    theirs.sort(key=lambda each: each.offset)
    seen = [each for each in theirs if each.visible_ms <= moment_ms]
    return seen[-1].row if seen else None


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_a_table_that_is_slid_equals_rows_as_of_for_every_key(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    script = list(transactions(random, 25))
    with served_log(tmp_path / f"data-{seed}-{random.random()}") as served:
        served.write(*[tables_of(changes, commit=START_MS // 1000 + at) for at, changes in script])

        async def look() -> None:
            stored = await stored_schema(served.log, PIPELINE, "orders")
            told = await recent_changes(served.log, stored, view_of(stored))
            assert told.is_whole
            [place] = [TopicPartition(stored.topic, 0)]
            for moment_s in sorted({at for at, _ in script}):
                moment_ms = START_MS + moment_s * 1000
                if moment_s < script[0][0]:
                    continue  # before the first commit nothing is known
                ends = (
                    await find_cut_point(served.log, PIPELINE, TimeAsOf(moment_ms), [place])
                ).ends
                for key in KEYS:
                    keys = await key_bytes(served.log, stored, str(key))
                    expected = await newest_change(served.log, stored.topic, keys, ends=ends)
                    row = None if expected is None or expected.row is None else expected.row
                    cells = None if row is None else [str(row["id"]), str(row["value"])]
                    assert shown_at(told.changes, moment_ms, str(key)) == cells

        served.run(look)


@pytest.mark.slow
def test_the_changes_of_one_key_are_those_of_its_history(served: ServedLog) -> None:
    script = list(transactions(Random(5), 40, goes_back=False))
    served.write(*[tables_of(changes, commit=START_MS // 1000 + at) for at, changes in script])

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        all_of_them = (await recent_changes(served.log, stored, view_of(stored))).changes
        found = await changes_of_key(served.log, stored, view_of(stored), "3")
        wanted = [each for each in all_of_them if each.key in ("3", None)]
        assert [each.offset for each in found.changes] == [e.offset for e in wanted]
        assert [(each.key, each.row) for each in found.changes] == [
            (each.key, each.row) for each in wanted
        ]
        assert [each.visible_ms for each in found.changes] == [each.visible_ms for each in wanted]

    served.run(look)


def test_a_past_says_what_it_has_not_looked_at(
    served: ServedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_past, "CHANGES_MAX", 5)
    monkeypatch.setattr(table_past, "KEYS_MAX", 2)
    served.write(*[tables_of([("orders", "c", key, "new")], commit=key) for key in range(20)])

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        told = await recent_changes(served.log, stored, view_of(stored))
        assert not told.is_whole
        assert [each.key for each in told.changes] == ["18", "19"]
        assert told.keys_left_out > 0

    served.run(look)


@pytest.mark.slow
def test_the_activity_counts_every_record(served: ServedLog) -> None:
    served.write(*[tables_of([("orders", "c", key, "new")], commit=key) for key in range(20)])

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        told = await activity(served.log, stored.topic, now_ms=2_000_000_000_000)
        bounds = await served.log.bounds([TopicPartition(stored.topic, 0)])
        assert sum(told.counts) == next(iter(bounds.values())).end

    served.run(look)


KEYS_OF_A_KIND: dict[str, tuple[dict[str, pa.DataType], list[tuple[Any, ...]]]] = {
    "texts": (
        {"a": pa.string()},
        [("5",), ("a=5",), ('["5"]',), ('{"a":"5"}',), ("",), ("x, y",), ("k" * 2_001,)],
    ),
    "long": ({"a": pa.string()}, [("k" * 2_500,), ("k" * 2_501,)]),
    "pairs": (
        {"a": pa.string(), "b": pa.string()},
        [("x, y", "z"), ("x", "y, z"), ("[1", "2]"), ("a=1", "b=2"), ("", " "), ("7", "abc")],
    ),
    "numbers": ({"a": pa.int64(), "b": pa.string()}, [(7, "abc"), (7, " abc"), (-7, "")]),
    "bytes": ({"a": pa.binary()}, [(b"\xff\xfe",), (b"abcd",), (b"\xab\xcd",)]),
    "times": (
        {"a": pa.timestamp("us", "UTC"), "b": pa.date32(), "c": pa.time64("us"), "d": pa.bool_()},
        [(datetime(2026, 1, 2, 3, 4, 5, 678, UTC), date(2026, 1, 2), time(1, 2, 3, 4), True)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYS_OF_A_KIND)
def test_every_key_is_found_by_the_text_that_is_shown_for_it(served: ServedLog, kind: str) -> None:
    types, keys = KEYS_OF_A_KIND[kind]
    schema = schema_of("public.orders", key=tuple(types), **types, value=pa.string())
    rows = [dict(zip(types, key, strict=True)) for key in keys]
    served.write((changes_of(schema, *[("c", row) for row in rows]),))

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        told = await recent_changes(served.log, stored, view_of(stored))
        assert len({each.key for each in told.changes}) == len(keys)
        for each in told.changes:
            assert each.key is not None
            found = await changes_of_key(served.log, stored, view_of(stored), each.key)
            assert [(one.key, one.offset) for one in found.changes] == [(each.key, each.offset)]

    served.run(look)


def test_a_key_of_bytes_is_found_by_what_a_comparison_shows_of_it(served: ServedLog) -> None:
    schema = schema_of("public.orders", key=("a",), a=pa.binary(), value=pa.string())
    served.write((changes_of(schema, ("c", {"a": b"\xff\xfe"}), ("c", {"a": b"\xff\xfd"})),))

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        for key in ('{"a":"base64://4="}', "base64://4=", "fffe", "\\xfffe"):
            found = await changes_of_key(served.log, stored, view_of(stored), key)
            assert [each.offset for each in found.changes] == [0]

    served.run(look)


@pytest.mark.slow
def test_a_change_names_every_row_of_its_transaction_and_who_has_it(served: ServedLog) -> None:
    changes: list[Change] = [
        ("orders", "c", 1, "a"),
        ("items", "c", 7, "b"),
        ("orders", "c", 2, "c"),
    ]
    served.write(
        tables_of([("orders", "c", 0, "before")], commit=1),
        tables_of(changes, commit=2),
        tables_of([("orders", "u", 1, "after")], commit=3),
    )

    async def look() -> None:
        stored = await stored_schema(served.log, PIPELINE, "orders")
        told = await recent_changes(served.log, stored, view_of(stored))
        change = next(each for each in told.changes if each.row == ["2", "c"])
        found = await trace(
            served.log,
            PIPELINE,
            TopicPartition(stored.topic, 0),
            change.offset,
            appended_ms=change.appended_ms,
            hidden=NOTHING_HIDDEN,
            tasks={},
        )
        rows = {
            (each.table, each.change.key, tuple(each.change.row or ())) for each in found.changes
        }
        assert rows == {
            ("public.orders", "1", ("1", "a")),
            ("public.items", "7", ("7", "b")),
            ("public.orders", "2", ("2", "c")),
        }
        assert int(found.positions["stream"]) >= 2, "the log's transaction reaches behind it"
        offset = change.offset
        tasks = {
            "source": {"positions": {}},
            "behind": {"positions": {f"{stored.topic}-0": str(offset)}},
        }
        assert applied_by(tasks, found.changes) == [SinkOfTransaction("behind", False)]

    served.run(look)
