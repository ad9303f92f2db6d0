"""Each way of keeping a table of the lake does with a change what its page says."""

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from headwater.sinks.sink import Sink
from tests.contract.mode_suite import ModeContract
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of


def bench_of(path: Path, *, deletes: str = "hard", **table: Any) -> LakeBench:
    chosen = {"deletes": deletes, "tables": {"*": {"file_rows": 3, **table}}}
    return LakeBench(str(path / "lake"), chosen=chosen)


class Target:
    def __init__(self, path: Path) -> None:
        self._path = path

    def sink_of(self, *, mode: str = "mirror", deletes: str = "hard") -> Sink:
        return bench_of(self._path, deletes=deletes, mode=mode).sink()

    def all_rows(self, table: str) -> list[dict[str, Any]]:
        found = bench_of(self._path).table(table)
        assert found is not None
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows


class TestLake(ModeContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> Target:
        return Target(tmp_path)


def keys_in_files(path: Path, key: tuple[str, ...]) -> list[list[tuple[Any, ...]]]:
    """Of every file in its order, those that the table no longer has among them."""
    files = [parquet.read_table(each) for each in path.rglob("part-*.parquet")]
    return [list(zip(*(file[name].to_pylist() for name in key), strict=True)) for file in files]


@pytest.mark.parametrize("key", [("id",), ("name",), ("name", "id")])
@pytest.mark.parametrize("mode", ["mirror", "soft_delete"])
async def test_every_file_holds_its_rows_in_the_order_of_the_key(
    mode: str, key: tuple[str, ...], tmp_path: Path
) -> None:
    """So that who looks for a key can pass over most of a file."""
    schema = schema_of("public.orders", key=key, id=pa.int64(), name=pa.string())
    bench, topic = bench_of(tmp_path, mode=mode, file_rows=1_000), ScriptedTopic()
    chance, sink = Random(7), bench.sink()
    await sink.committed_offsets([topic.name])

    for _ in range(3):
        numbers = chance.sample(range(-50, 50), 40)
        topic.append(schema, *(("u", {"id": at, "name": f"é{at % 7}{at}"}) for at in numbers))
        await sink.apply(topic.slice())

    found = keys_in_files(tmp_path, key)
    assert len(found) == 3
    assert found == [sorted(each) for each in found]
