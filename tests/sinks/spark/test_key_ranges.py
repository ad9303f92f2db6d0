"""A change rewrites the files into whose ranges of keys it falls, whatever a key is made of."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.spark.key_ranges import DataFile, KeyRange, assign, cells_of, range_of, within
from headwater.sinks.spark.lake import Lake
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of

MOMENT = datetime(2024, 2, 28, 23, 59, 59, 999_000)
KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [-(2**60) + at * 2**55 for at in range(40)]),
    (pa.string(), [f"ü{at:03}" for at in range(40)]),
    (pa.date32(), [date(1969, 12, 20) + timedelta(at) for at in range(40)]),
    (pa.timestamp("us"), [MOMENT + timedelta(microseconds=at) for at in range(40)]),
    (
        pa.timestamp("us", "UTC"),
        [MOMENT.replace(tzinfo=UTC) + timedelta(microseconds=at) for at in range(40)],
    ),
    (pa.decimal128(9, 2), [Decimal(at - 20) / 100 for at in range(40)]),
    (pa.decimal128(38, 10), [Decimal(f"{10**26 + at}.{at:010}") for at in range(40)]),
    (pa.uint64(), [2**64 - 40 + at for at in range(40)]),
    (pa.time64("us"), [(MOMENT - timedelta(seconds=at)).time() for at in range(40)]),
]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[str(kind) for kind, _ in KEYS])
async def test_a_change_of_one_key_rewrites_one_file(
    tmp_path: Path, kind: pa.DataType, keys: list[Any], format: str
) -> None:
    chosen = {"format": format, "tables": {"*": {"file_rows": 10}}}
    bench = LakeBench(str(tmp_path / "lake"), chosen=chosen)
    orders = schema_of(id=kind, note=pa.string())
    topic = ScriptedTopic()
    topic.append(orders, *[("c", {"id": key, "note": "old"}) for key in keys])
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    before = files_of(bench)

    topic.append(orders, ("u", {"id": keys[17], "note": "new"}), ("d", {"id": keys[18]}))
    await sink.apply(topic.slice())

    after = files_of(bench)
    assert (len(before), len(after), len({*before} & {*after})) == (4, 4, 3)
    assert all(each.low is not None for each in after)
    found = bench.table("public.orders")
    assert found is not None
    assert found["note"].to_pylist().count("new") == 1 and found.num_rows == 39


def files_of(bench: LakeBench) -> tuple[DataFile, ...]:
    sink = bench.sink()
    state = Lake(sink._settings, sink._context).table(TableId("public", "orders")).load()
    assert state is not None
    return state.files


@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[str(kind) for kind, _ in KEYS])
def test_every_key_falls_into_the_cell_that_holds_it(kind: pa.DataType, keys: list[Any]) -> None:
    kind = pa.decimal128(20, 0) if kind == pa.uint64() else kind
    parts = [sorted(keys)[at : at + 10] for at in range(0, 40, 10)]
    ranges = [range_of(pa.chunked_array([pa.array(part, kind)])) for part in parts]
    files = [DataFile(str(at), 10, 1, *ends) for at, ends in enumerate(ranges)]

    cells = cells_of(files)

    assert [each.files for each in cells] == [(file,) for file in files]
    for number, (cell, part) in enumerate(zip(cells, parts, strict=True)):
        assert assign(pa.array(part, kind), cells).tolist() == [number] * 10
        held = within(pa.chunked_array([pa.array(keys, kind)]), cell)
        assert held is not None and sum(held.to_pylist()) == 10


async def test_days_beyond_the_years_of_four_digits_have_no_range(tmp_path: Path) -> None:
    bench = LakeBench(str(tmp_path / "lake"))
    orders = schema_of(id=pa.date32(), note=pa.string())
    topic = ScriptedTopic()
    topic.append(orders, ("c", {"id": 5_000_000, "note": "far"}), ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(orders, ("u", {"id": 5_000_000, "note": "farther"}))
    await sink.apply(topic.slice())

    assert cells_of(files_of(bench)) == [KeyRange(None, None, files_of(bench))]
    found = bench.table("public.orders")
    assert found is not None
    rows = zip(found["id"].cast(pa.int32()).to_pylist(), found["note"].to_pylist(), strict=True)
    assert sorted(rows) == [(1, "a"), (5_000_000, "farther")]
