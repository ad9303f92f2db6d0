"""Commits of other programs to a table of ours: what they leave unsaid is noticed, and never
passed over."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import DataScan, FileScanTask, Table

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import SinkRejected
from headwater.sinks.sink import RebuildRecipe
from headwater.sinks.spark.sink import SparkSink
from tests.contract.sink_suite import ORDERS, by_id
from tests.sinks.spark.orders import TABLE, applied, bench_of, iceberg_bench, many, state_of
from tests.sinks.spark.targets import LakeBench
from tests.slices import ScriptedTopic, schema_of


def delta_of(bench: LakeBench) -> DeltaTable:
    return DeltaTable(bench.address("public.orders"))


def iceberg_of(bench: LakeBench) -> Table:
    catalog = load_catalog("headwater", type="sql", uri=f"sqlite:///{bench.path}/catalog.db")
    return catalog.load_table(("headwater", "public_orders"))


async def two_slices(bench: LakeBench, topic: ScriptedTopic) -> None:
    for first in (0, 4):
        topic.append(ORDERS, *many(first, 4))
        await applied(bench, topic)


async def rebuilt(sink: SparkSink, topic: ScriptedTopic) -> None:
    shadow = await sink.shadow(RebuildRecipe(TABLE))
    await shadow.committed_offsets([topic.name])
    await shadow.apply(topic.slice(start={0: 0}))
    await sink.swap(TABLE)


async def check_waits(bench: LakeBench, topic: ScriptedTopic) -> None:
    """The table takes no slice until a rebuild, and all of its rows are there afterwards."""
    topic.append(ORDERS, *many(8, 1))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    with pytest.raises(SinkRejected, match="a version without offsets"):
        await sink.apply(topic.slice())
    await rebuilt(sink, topic)
    topic.append(ORDERS, *many(9, 1))
    await applied(bench, topic)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == list(range(10))


async def vacuumed(bench: LakeBench) -> None:
    """Delta writes a commit of its own for that."""
    delta_of(bench).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)


async def maintained(bench: LakeBench) -> None:
    await bench.sink().maintain()


@pytest.mark.parametrize("follows", [vacuumed, maintained])
async def test_a_table_that_was_put_back_waits_whatever_is_committed_to_it_meanwhile(
    follows: Callable[[LakeBench], Any], tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path, maintenance={"small_files": 2}), ScriptedTopic()
    bench.chosen["tables"] = {"*": {"mode": "append"}}
    bench.clock = SystemClock()
    for first in (0, 2, 4):
        topic.append(ORDERS, *many(first, 4 if first == 4 else 2))
        await applied(bench, topic)
    delta_of(bench).restore(1)

    await follows(bench)

    await check_waits(bench, topic)


@pytest.mark.parametrize("by_time", [False, True])
async def test_a_table_put_back_to_some_version_before_its_swap_waits(
    by_time: bool, tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    bench.clock = SystemClock()
    await two_slices(bench, topic)
    await rebuilt(bench.sink(), topic)
    [*_, first] = delta_of(bench).history()
    at = datetime.fromtimestamp(first["timestamp"] / 1_000, UTC)

    delta_of(bench).restore(at if by_time else 0)

    assert len(await bench.rows("public.orders")) == 4
    await check_waits(bench, topic)


async def test_a_table_that_is_put_back_to_a_version_of_its_own_offsets_goes_on(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    await two_slices(bench, topic)
    delta_of(bench).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    delta_of(bench).restore(1)
    topic.append(ORDERS, *many(8, 1))

    await applied(bench, topic)

    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == list(range(9))


@pytest.mark.parametrize("is_expired", [False, True])
async def test_an_iceberg_table_that_was_rolled_back_waits_for_its_rebuild(
    is_expired: bool, tmp_path: Path
) -> None:
    bench, topic = iceberg_bench(tmp_path), ScriptedTopic()
    await two_slices(bench, topic)
    table = iceberg_of(bench)

    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    if is_expired:
        iceberg_of(bench).maintenance.expire_snapshots().older_than(datetime.max).commit()

    await bench.sink().maintain()
    await check_waits(bench, topic)


def deletion_vector(row: int) -> dict[str, Any]:
    """In Delta's own form within the log: a bitmap of one row, in the letters of Z85."""
    bitmap = struct.pack("<IQIIIHHIH", 1_681_511_377, 1, 0, 12_346, 1, 0, 0, 16, row)
    letters = (
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
    padded, text = bitmap + bytes(-len(bitmap) % 4), ""
    for [number] in struct.iter_unpack(">I", padded):
        text += "".join(letters[number // 85**power % 85] for power in (4, 3, 2, 1, 0))
    size = len(bitmap)
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": 1}


def commit(bench: LakeBench, *actions: dict[str, Any]) -> None:
    log = Path(
        bench.address("public.orders"), "_delta_log", f"{delta_of(bench).version() + 1:020d}.json"
    )
    log.write_text("".join(json.dumps(each) + "\n" for each in actions))


def delta_log(bench: LakeBench) -> list[str]:
    return sorted(
        path.name for path in Path(bench.address("public.orders"), "_delta_log").iterdir()
    )


def delete_of_delta(bench: LakeBench, row: int) -> None:
    """As Spark deletes a row of a table with deletion vectors."""
    [file] = state_of(bench).files
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    named = {"path": file.path, "partitionValues": {}, "dataChange": True, "size": file.size}
    stats = json.dumps({"numRecords": file.rows})
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features},
        {"remove": named | {"deletionTimestamp": 1}},
        {
            "add": named
            | {"modificationTime": 1, "stats": stats}
            | {"deletionVector": deletion_vector(row)}
        },
    ]
    commit(bench, *actions)


async def test_rows_that_a_deletion_vector_takes_away_are_not_taken_for_rows_of_the_table(
    tmp_path: Path,
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    delete_of_delta(bench, 1)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 2, 3]
    sink = bench.sink()

    with pytest.raises(SinkRejected, match="has deleted single rows"):
        await sink.committed_offsets([topic.name])
    with pytest.raises(SinkRejected, match="has deleted single rows"):
        async with sink.contents(ORDERS, [topic.name]):
            pass
    topic.append(ORDERS, ("u", {"id": 3, "note": "b"}))
    with pytest.raises(SinkRejected, match="has deleted single rows"):
        await sink.apply(topic.slice())

    assert await sink.drop_table(TABLE, [topic.name])
    await applied_whole(bench, topic)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 1, 2, 3]


async def test_rows_that_a_delete_file_takes_away_are_not_taken_for_rows_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg reads delete files and writes none."""
    bench, topic = iceberg_bench(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    really = DataScan.plan_files

    def with_deletes(scan: DataScan) -> list[FileScanTask]:
        return [FileScanTask(each.file, delete_files={each.file}) for each in really(scan)]

    monkeypatch.setattr(DataScan, "plan_files", with_deletes)

    with pytest.raises(SinkRejected, match="has deleted single rows"):
        async with bench.sink().contents(ORDERS, [topic.name]):
            pass


async def applied_whole(bench: LakeBench, topic: ScriptedTopic) -> None:
    sink = bench.sink()
    assert await sink.committed_offsets([topic.name]) == {}
    await sink.apply(topic.slice(start={0: 0}))


def meta_data(bench: LakeBench, marks: dict[str, Any], **properties: str) -> dict[str, Any]:
    """The newest of the table, with more properties and with marks at its columns."""
    metadata, schema = delta_of(bench).metadata(), json.loads(delta_of(bench).schema().to_json())
    for number, field in enumerate(schema["fields"]):
        field["metadata"] |= {
            name: each(number, field["name"]) if callable(each) else each
            for name, each in marks.items()
        }
    return {
        "metaData": {
            "id": str(metadata.id),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": metadata.configuration | properties,
        }
    }


def map_columns(bench: LakeBench) -> None:
    """As Spark switches it on for a table that is there."""
    protocol = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    marks = {
        "delta.columnMapping.id": lambda number, _: number + 1,
        "delta.columnMapping.physicalName": lambda _, name: name,
    }
    commit(bench, protocol, meta_data(bench, marks, **{"delta.columnMapping.mode": "name"}))


def constrain(bench: LakeBench) -> None:
    delta_of(bench).alter.add_constraint({"early": "id < 100"})


def feed_changes(bench: LakeBench) -> None:
    delta_of(bench).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})


def only_append(bench: LakeBench) -> None:
    delta_of(bench).alter.set_table_properties({"delta.appendOnly": "true"})


def forbid(bench: LakeBench) -> None:
    marks = {"delta.invariants": '{"expression":{"expression":"note IS NOT NULL"}}'}
    commit(bench, meta_data(bench, marks))


def ask_writers(*features: str) -> dict[str, Any]:
    found = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [*features]}
    return {"protocol": found}


def track_rows(bench: LakeBench) -> None:
    commit(bench, ask_writers("domainMetadata", "rowTracking"))


def come_from_the_future(bench: LakeBench) -> None:
    features = {"readerFeatures": ["telepathy"], "writerFeatures": ["telepathy"]}
    commit(bench, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features})


def stamp_commits(bench: LakeBench) -> None:
    stamps = meta_data(bench, {}, **{"delta.enableInCommitTimestamps": "true"})
    commit(bench, ask_writers("inCommitTimestamp"), stamps)


@pytest.mark.parametrize(
    ("feature", "switch_on"),
    {
        "columnMapping": map_columns,
        "checkConstraints": constrain,
        "changeDataFeed": feed_changes,
        "appendOnly": only_append,
        "invariants": forbid,
        "rowTracking": track_rows,
        "telepathy": come_from_the_future,
        "inCommitTimestamp": stamp_commits,
    }.items(),
)
async def test_a_table_with_a_feature_that_we_do_not_write_is_refused_and_can_be_dropped(
    feature: str, switch_on: Callable[[LakeBench], None], tmp_path: Path
) -> None:
    """Another program switches it on while the sink runs."""
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    topic.append(ORDERS, *many(0, 4))
    await sink.apply(topic.slice())
    switch_on(bench)
    switched_at = delta_log(bench)[-1]

    topic.append(ORDERS, ("u", {"id": 3, "note": "b"}), ("d", {"id": 1}))
    for each in (sink, bench.sink()):
        with pytest.raises(SinkRejected, match="a feature that this sink does not write") as told:
            await each.committed_offsets([topic.name])
            await each.apply(topic.slice())
        assert told.value.facts["feature"] == feature and "ALTER TABLE" in told.value.hint
    assert delta_log(bench)[-1] == switched_at, "nothing was committed after the other program"
    assert await bench.sink().drop_table(TABLE, [topic.name])
    await applied_whole(bench, topic)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [0, 2, 3]


@pytest.mark.parametrize("switch_on", [feed_changes, only_append])
async def test_a_log_of_changes_may_have_a_change_feed_and_be_append_only(
    switch_on: Callable[[LakeBench], None], tmp_path: Path
) -> None:
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    bench.chosen["tables"] = {"*": {"mode": "append"}}
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)

    switch_on(bench)

    topic.append(ORDERS, *many(4, 1))
    await applied(bench, topic)
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == list(range(5))


async def test_properties_of_another_program_outlive_a_change_of_the_columns(
    tmp_path: Path,
) -> None:
    """Features that nothing in the table uses are kept, as are properties."""
    bench, topic = bench_of(tmp_path), ScriptedTopic()
    topic.append(ORDERS, *many(0, 4))
    await applied(bench, topic)
    delta_of(bench).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    commit(bench, ask_writers("appendOnly", "domainMetadata", "invariants"))
    held = delta_of(bench).protocol()

    wider = schema_of("public.orders", id=pa.int64(), note=pa.string(), at=pa.timestamp("us"))
    topic.append(wider, ("c", {"id": 4, "note": "a", "at": datetime(2026, 1, 1)}))
    await applied(bench, topic)

    properties, now = delta_of(bench).metadata().configuration, delta_of(bench).protocol()
    assert properties["delta.logRetentionDuration"] == "interval 9 days"
    assert now.reader_features == ["timestampNtz"]
    assert {*(now.writer_features or ())} == {*(held.writer_features or ()), "timestampNtz"}
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == list(range(5))
