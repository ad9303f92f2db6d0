"""Chunks of one table are read at the same time, and each begins where the one before it ends."""

import pyarrow as pa

from headwater.connectors.mysql.server.catalog import MysqlTable
from headwater.connectors.mysql.server.server_identity import FilePosition, MysqlSnapshotPoint
from headwater.connectors.mysql.snapshot.chunk_reader import MysqlChunk
from headwater.connectors.mysql.snapshot.table_jobs import MysqlTableProgress, TableJob
from headwater.core_log.model.table_schema import TableId, TableSchema

TABLE = MysqlTable(TableSchema(TableId("shop", "t"), (), ()), (), (), (), ())


def rows_to(last: bytes, *, is_last: bool = False) -> MysqlChunk:
    nothing = pa.RecordBatch.from_arrays([], names=[])
    return MysqlChunk(nothing, (last,), is_last, MysqlSnapshotPoint(FilePosition("", 0), 0))


def test_a_chunk_of_a_known_end_is_followed_by_another_before_it_is_read() -> None:
    job = TableJob(TABLE, MysqlTableProgress(last=(b"3",)))
    first = job.next_chunk()
    assert first.after == (b"3",) and not job.wants_worker(2)

    first.upto = (b"7",)

    assert job.wants_worker(2) and not job.wants_worker(1)
    assert job.next_chunk().after == (b"7",)
    assert not job.wants_worker(2)


def test_nothing_follows_the_last_chunk_and_what_is_dropped_begins_again() -> None:
    job = TableJob(TABLE, MysqlTableProgress())
    taken = job.next_chunk()
    taken.chunk = rows_to(b"5")
    assert job.next_chunk().after == (b"5",)
    job.chunks[-1].chunk = rows_to(b"9", is_last=True)
    assert not job.wants_worker(9)

    job.drop_chunks()

    assert job.wants_worker(1) and job.next_chunk().after is None
