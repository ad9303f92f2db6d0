"""A commit of an Iceberg table stays quick however many versions the table has."""

import sqlite3
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ServerError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.snapshots import Snapshot
from sqlalchemy.exc import OperationalError

from headwater.core_log.foundation.errors import SinkUnavailable
from headwater.sinks.spark.iceberg.table import _forget_removed
from tests.sinks.spark.orders import TABLE, begun, iceberg_bench, many, moved, state_of, topic_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of


@pytest.fixture
def bench(tmp_path: Path) -> LakeBench:
    return iceberg_bench(tmp_path)


@pytest.fixture
def topic() -> ScriptedTopic:
    return topic_of(many(0, 4))


@pytest.mark.slow
async def test_a_slice_reads_nothing_that_the_sink_has_written_itself(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = await begun(bench, topic)
    read = count_reads(monkeypatch)

    await moved(sink, topic, 3)
    by_itself = len(read)
    another = bench.sink()
    await another.committed_offsets([topic.name])
    await moved(another, topic, 2)

    assert by_itself == 0
    assert len(read) == 1, "what stood there when it began"


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    read, really = list[str](), FromInputFile.table_metadata

    def reading(input_file: Any, *rest: Any) -> Any:
        read.append(input_file.location)
        return really(input_file, *rest)

    monkeypatch.setattr(FromInputFile, "table_metadata", staticmethod(reading))
    return read


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_namespace_that_another_thread_has_just_created_is_taken(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """A REST catalog over a database answers with an internal error then."""
    really = Catalog.create_namespace_if_not_exists

    def lose_the_race(catalog: Catalog, namespace: str) -> None:
        if is_there:
            really(catalog, namespace)
        raise ServerError("UncheckedSQLException: Failed to execute: INSERT INTO ...")

    monkeypatch.setattr(Catalog, "create_namespace_if_not_exists", lose_the_race)

    if is_there:
        await begun(bench, topic)
        assert state_of(bench).files
    else:
        with pytest.raises(SinkUnavailable, match="the catalog or its store"):
            await begun(bench, topic)


@pytest.mark.slow
async def test_commits_of_others_are_read(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.chosen["maintenance"] = {"small_files": 2}
    bench.chosen["tables"] = {"*": {"mode": "append"}}
    sink = await begun(bench, topic)
    await moved(sink, topic, 2)
    assert await bench.sink().maintain() == ["public.orders: 3 small files were compacted into 1"]
    read = count_reads(monkeypatch)

    await moved(sink, topic, 1)

    assert len(read) == 1
    assert len(state_of(bench).files) == 2


@pytest.mark.slow
async def test_the_remembered_state_is_the_written_one(
    bench: LakeBench, topic: ScriptedTopic
) -> None:
    sink = await begun(bench, topic)
    await moved(sink, topic, 2)
    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), count=pa.int32())
    topic.append(wider, ("c", {"id": 9, "note": "b", "count": 3}))
    await sink.apply(topic.slice())
    await sink.maintain()

    remembered = sink._lake.table(TABLE).load()
    written = state_of(bench)

    assert remembered == written
    assert remembered is not None
    mine, theirs = remembered.native[0], written.native[0]
    assert mine.metadata == theirs.metadata
    assert mine.metadata_location == theirs.metadata_location


@pytest.mark.slow
async def test_a_commit_copies_the_versions_that_there_are_twice_at_most(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = await begun(bench, topic)
    copied, really = list[int](), Snapshot.__deepcopy__

    def copying(self: Snapshot, memo: dict[int, Any] | None = None) -> Snapshot:
        copied.append(self.snapshot_id)
        return really(self, memo)

    monkeypatch.setattr(Snapshot, "__deepcopy__", copying)
    await moved(sink, topic, 1)
    few = len(copied)
    monkeypatch.undo()
    await moved(sink, topic, 20)
    monkeypatch.setattr(Snapshot, "__deepcopy__", copying)
    copied.clear()

    await moved(sink, topic, 1)

    assert few, "they are counted"
    assert len(copied) - few <= 2 * 21


def test_a_library_without_what_is_private_to_it_is_left_alone() -> None:
    class Update:
        pass

    update = Update()
    _forget_removed(update)

    assert not vars(update)


async def test_a_catalog_whose_tables_another_process_makes_meanwhile_is_opened(
    bench: LakeBench, topic: ScriptedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, times = SqlCatalog.create_tables, count(1)

    def make_again(self: SqlCatalog) -> None:
        make(self)
        if next(times) == 1:
            raise OperationalError("CREATE TABLE", {}, sqlite3.OperationalError("it exists"))

    monkeypatch.setattr(SqlCatalog, "create_tables", make_again)
    sink = await begun(bench, topic)
    await sink.close()

    assert len(await bench.rows("public.orders")) == 4
