"""Changes of a table without a key that is being read wait, and none is lost or comes twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headwater.connectors.postgres.catalog import FULL, CapturedTable, Catalog
from headwater.connectors.postgres.events.event_metadata import SourceOrigin
from headwater.connectors.postgres.server.lsn import PgSnapshot
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.deduplication_window import KeylessBuffer
from headwater.connectors.postgres.snapshot.incremental_snapshot import IncrementalSnapshot
from headwater.connectors.postgres.snapshot.jobs import SnapshotJob
from headwater.connectors.postgres.snapshot.progress import LeafProgress
from headwater.connectors.postgres.snapshot.row_mapper import RowMapper
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.connectors.source import SourceContext
from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from tests.connectors.postgres.source_session import ignore
from tests.fakes import SimulatedClock

TABLE = TableId("public", "audit")
SCHEMA = TableSchema(TABLE, (Column("at", pa.int64()),), ())


def inserted(*values: int) -> TableChanges:
    rows = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA.arrow)
    kinds = pa.array([Operation.INSERT] * len(values), pa.uint8())
    return TableChanges(SCHEMA, rows, kinds, {"ts_us": 0})


def by(*xids: int) -> Int64Array:
    return np.array(xids, np.int64)


@pytest.fixture
def incremental() -> IncrementalSnapshot:
    settings = PostgresSettings.model_validate({"url": "postgresql://nowhere", "tables": ["*"]})
    context = SourceContext("shop", Path(), SimulatedClock(), ignore)
    reader = RowMapper(settings, context, SourceOrigin("shop", "shop"))
    table = CapturedTable(7, "r", SCHEMA, (), (), (), FULL, (), (), None, 0, is_readable=True)
    catalog = Catalog(settings.tables, settings.keys, "headwater_shop", TypeMap(settings))
    return IncrementalSnapshot(reader, catalog, [table], {}, reads_new=True)


@pytest.fixture
def job(incremental: IncrementalSnapshot) -> SnapshotJob:
    """Somebody reads it under a snapshot, and nobody else is to begin."""
    found = incremental._jobs.find(str(TABLE))
    assert found is not None, "a table that is new here is to be read"
    found.hold, found.is_taken = KeylessBuffer(by()), True
    found.begin(PgSnapshot(5, 9, frozenset({6})), [])
    found.progress = replace(found.progress, leaves=(LeafProgress(7, 7, 1),))
    return found


def test_changes_that_the_snapshot_sees_are_left_to_it() -> None:
    hold = KeylessBuffer(by())

    hold.saw(inserted(1, 2, 3), by(5, 6, 9))
    hold.saw(inserted(4), by(8))

    later = hold.later(PgSnapshot(5, 9, frozenset({6})))
    assert [each.rows.to_pydict() for each in later] == [{"at": [2, 3]}]


def test_a_table_that_is_not_being_read_has_no_remembered_transaction(
    incremental: IncrementalSnapshot,
) -> None:
    job = incremental._jobs.find(str(TABLE))
    assert job is not None, "a table that is new here is to be read"

    incremental.saw(inserted(1), by(5))
    before = job.watch.streamed
    job.watch.begin()
    incremental.saw(inserted(2), by(6))
    meanwhile = job.watch.streamed
    job.watch.rest()
    incremental.saw(inserted(3), by(7))

    assert [each.tolist() for each in (before, meanwhile, job.watch.streamed)] == [[], [6], []]


async def test_changes_are_given_back_when_the_reading_is_given_up(
    incremental: IncrementalSnapshot, job: SnapshotJob
) -> None:
    assert not incremental.saw(inserted(1), by(5))

    incremental._pending.finish(job)
    batch = await incremental.ready(0)

    assert batch is not None
    assert [each.rows.to_pydict() for each in batch.tables] == [{"at": [1]}]
    assert list(batch.positions) == ["snapshot/public.audit"]
    assert incremental.saw(inserted(2), by(5))


async def test_a_full_buffer_ends_the_reading_which_begins_anew(
    incremental: IncrementalSnapshot, job: SnapshotJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headwater.connectors.postgres.snapshot.deduplication_window.HELD_BYTES_MAX", 100
    )
    hold = job.hold
    assert hold is not None and not incremental.saw(inserted(1), by(7))

    given_back = incremental.saw(inserted(2, 3), by(7, 8))

    assert [each.rows.to_pydict() for each in given_back] == [{"at": [1]}, {"at": [2, 3]}]
    assert incremental.saw(inserted(4), by(9)), "later ones go straight on"
    assert hold.is_overrun and not job.is_prepared and not job.is_over


async def test_a_truncate_takes_with_it_what_came_before(
    incremental: IncrementalSnapshot, job: SnapshotJob
) -> None:
    assert not incremental.saw(inserted(1), by(5))

    incremental.forget_rows(TABLE)
    batch = await incremental.ready(0)

    assert batch is not None and not batch.tables
    assert incremental.saw(inserted(2), by(7))
    assert not incremental.has_work
