"""Parts of a slice that are read elsewhere hold what the slice holds, each change once."""

import pickle
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.core_log.client import KafkaSettings
from headwater.core_log.foundation.errors import PositionLost
from headwater.core_log.model.log import TopicPartition
from headwater.pipelines.file.spec import RouteRule, TransformRule
from headwater.pipelines.loops.deliver.split_reader import LogSplitReader
from headwater.sinks.sink import AppliedOffset
from headwater.sinks.spark.splits import Split, splits_of
from tests.served_log import ServedLog, served_log
from tests.slices import changes_of, schema_of

TOPIC = "shop.public.orders"
FIRST = schema_of(id=pa.int64(), amount=pa.int32())
SECOND = schema_of(id=pa.int64(), amount=pa.int64(), note=pa.string())

FUNCTION = """
def note(rows):
    return [{**row, "note": says} if "note" in row else row for row in rows]
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedLog]:
    with served_log(tmp_path_factory.mktemp("log")) as served:
        served.write(
            [changes_of(FIRST, *[("c", {"id": key, "amount": key}) for key in range(100)])],
            [changes_of(FIRST, ("t", {}))],
            [changes_of(FIRST, ("d", {"id": 7}), ("u", {"id": 8, "amount": 80}))],
            [changes_of(SECOND, ("c", {"id": 200, "amount": 1 << 40, "note": "é"}))],
            partitions=3,
        )
        yield served


def reader_of(
    served: ServedLog,
    rules: tuple[TransformRule, ...] = (),
    routes: tuple[RouteRule, ...] = (),
    skipped: Mapping[TopicPartition, set[int]] | None = None,
) -> LogSplitReader:
    """As it arrives in another process."""
    reader = LogSplitReader(
        settings=KafkaSettings(bootstrap=list(served.log.bootstrap)),
        rules=rules,
        routes=routes,
        directory=Path(),
        fetch_bytes=1 << 10,
        skipped=lambda: skipped or {},
    )
    arrived: LogSplitReader = pickle.loads(pickle.dumps(reader))
    return arrived


def divided(served: ServedLog, *, records: int) -> list[Split]:
    start, end = served.offsets(TOPIC, at_end=False), served.offsets(TOPIC, at_end=True)
    bounds = served.run(lambda: served.log.bounds(end))
    return splits_of(start, end, bounds, records=records)


def read(reader: LogSplitReader, splits: list[Split]) -> dict[tuple[TopicPartition, int], Any]:
    """What stands at each place of the log."""
    found: dict[tuple[TopicPartition, int], Any] = {}
    for split in splits:
        for changes in reader.read(split.starts, split.ends):
            assert changes.log_partition == split.partition and changes.log_offsets is not None
            for offset, operation, row in zip(
                changes.log_offsets.to_pylist(),
                changes.operations.to_pylist(),
                changes.rows.to_pylist(),
                strict=True,
            ):
                assert (split.partition, offset) not in found
                found[split.partition, offset] = operation, row
    return found


@pytest.mark.slow
def test_a_divided_range_holds_the_same(served: ServedLog) -> None:
    whole = read(reader_of(served), divided(served, records=1_000))

    in_sevens = read(reader_of(served), divided(served, records=7))

    assert in_sevens == whole
    rows = [row for _, row in whole.values()]
    assert len(rows) == 100 + 3 + 2 + 1  # a truncate stands in every partition
    assert {"id": 200, "amount": 1 << 40, "note": "é"} in rows


def test_every_shape_of_the_table_is_known_in_its_order(served: ServedLog) -> None:
    shapes = served.run(lambda: reader_of(served).schemas(TOPIC))

    assert list(shapes) == [FIRST, SECOND]


@pytest.mark.slow
def test_filters_and_routes_go_along(served: ServedLog) -> None:
    rule = TransformRule.model_validate({"table": "public.orders", "filter": "amount > 1000"})
    route = RouteRule.model_validate({"from": "public.orders", "to": "lake.big"})
    reader = reader_of(served, (rule,), (route,))

    found = read(reader, divided(served, records=50))
    shapes = served.run(lambda: reader.schemas(TOPIC))

    assert {row["id"] for operation, row in found.values() if operation == 1} == {200}
    assert {str(shape.table) for shape in shapes} == {"lake.big"}


@pytest.mark.slow
def test_functions_beside_the_pipeline_file_go_along(served: ServedLog, tmp_path: Path) -> None:
    (tmp_path / "far_rules.py").write_text("from far_words import says\n\n\n" + FUNCTION)
    (tmp_path / "far_words").mkdir()
    (tmp_path / "far_words" / "__init__.py").write_text("from .words import says\n")
    (tmp_path / "far_words" / "words.py").write_text("says = 'from far away'\n")
    (tmp_path / "unrelated.py").write_text("this is no Python\n")
    rule = TransformRule.model_validate({"table": "public.*", "python": "far_rules:note"})
    content = pickle.dumps(replace(reader_of(served, (rule,)), directory=tmp_path, functions=None))
    shutil.rmtree(tmp_path)

    arrived: LogSplitReader = pickle.loads(content)
    found = read(arrived, divided(served, records=50))

    assert {row["note"] for operation, row in found.values() if row["id"] == 200} == {
        "from far away"
    }


def test_dead_letters_are_left_out(served: ServedLog) -> None:
    whole = read(reader_of(served), divided(served, records=50))
    partition, offset = next(place for place, (_, row) in whole.items() if row["id"] == 42)

    left = read(reader_of(served, skipped={partition: {offset}}), divided(served, records=50))

    assert whole.keys() - left.keys() == {(partition, offset)}


def test_another_topic_of_the_same_name_is_not_read(served: ServedLog) -> None:
    [first, *_] = divided(served, records=1_000)
    stale = {first.partition: AppliedOffset("another", first.start)}

    with pytest.raises(PositionLost, match="deleted and recreated"):
        list(reader_of(served).read(stale, {first.partition: AppliedOffset("another", first.end)}))


def test_splits_begin_where_the_log_begins(served: ServedLog) -> None:
    part = TopicPartition(TOPIC, 0)
    bounds = served.run(lambda: served.log.bounds([part]))
    here = AppliedOffset("id", bounds[part].start)

    found = splits_of(
        {part: AppliedOffset("id", -50)}, {part: AppliedOffset("id", 10)}, bounds, records=4
    )

    assert [(each.start, each.end) for each in found] == [(0, 3), (3, 6), (6, 10)]
    assert found[0].start == here.next_offset
