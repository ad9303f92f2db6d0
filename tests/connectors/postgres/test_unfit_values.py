"""A value that no column of ours holds costs its row, which is set aside, and nobody else."""

import asyncio

import orjson
import pyarrow as pa

from connectors.postgres.types.reading import ColumnPlan
from connectors.postgres.unfit import sifted_rows
from core_log.changes import ChangeBatch
from core_log.table_schema import Column, TableId
from tests.databases import Guest
from tests.debezium.ours import LAST, reading

TABLE = (
    "CREATE TABLE t (id int4 PRIMARY KEY, n numeric(10,2), at timestamp, name text)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    f"CREATE TABLE {LAST} (id int4 PRIMARY KEY)",
)
THERE = (
    "INSERT INTO t VALUES (1, 1.5, NULL, 'fits'), (2, 'NaN', NULL, 'secret'), (3, NULL, NULL, '')"
)
LATER = (
    "INSERT INTO t VALUES (4, 2.5, '294270-01-01', 'late'), (5, 2.5, 'infinity', 'fits')",
    "UPDATE t SET n = 'NaN' WHERE id = 1",
    "UPDATE t SET n = 3 WHERE id = 1",
    "DELETE FROM t WHERE id = 4",
    f"INSERT INTO {LAST} VALUES (1)",
)


def rows(batches: list[ChangeBatch]) -> list[tuple[str, int]]:
    return [
        ("rcudt"[operation], key)
        for batch in batches
        for changes in batch.tables
        if changes.schema.table.name == "t"
        for operation, key in zip(
            changes.operations.to_pylist(), changes.rows.column("id").to_pylist(), strict=True
        )
    ]


async def test_rows_that_do_not_fit_are_set_aside_and_the_others_go_on(guest: Guest) -> None:
    guest.execute(*TABLE, THERE)
    guest.publish()

    async with reading(guest.url, "plain") as found:
        await found.streaming()
        await asyncio.to_thread(guest.execute, *LATER)
        await found.ended

    assert rows(found.batches) == [("r", 1), ("r", 3), ("c", 5), ("u", 1), ("d", 4)]
    rejects = [reject for batch in found.batches for reject in batch.rejects]
    assert [orjson.loads(each.content) for each in rejects] == [
        {"id": "2", "n": "NaN"},
        {"id": "4", "at": "294270-01-01 00:00:00"},
        {"id": "1", "n": "NaN"},
    ]
    assert [each.problem.rpartition(": ")[2] for each in rejects] == ["n", "at", "n"]
    assert len({each.at for each in rejects}) == len(rejects)


def test_a_row_that_is_read_twice_is_set_aside_in_the_same_place() -> None:
    kind = pa.decimal128(5, 2)
    columns = [Column("id", pa.string()), Column("n", kind), Column("name", pa.string())]
    plans = [
        ColumnPlan(column, lambda text, column=column: text.cast(column.type), pa.scalar(None))  # type: ignore[misc]
        for column in columns
    ]
    numbers = pa.array(["1.5", "NaN", None, "1234567"])
    texts = [pa.array(["a", "b", "c", "d"]), numbers, pa.array(["secret"] * 4)]

    kept, rejects = sifted_rows(texts, plans, TableId("s", "t"), ("id",))
    _, again = sifted_rows(texts, plans, TableId("s", "t"), ("id",))

    assert [text.to_pylist() for text in kept] == [["a", "c"], ["1.5", None], ["secret"] * 2]
    assert [each.content for each in rejects] == [
        b'{"id":"b","n":"NaN"}',
        b'{"id":"d","n":"1234567"}',
    ]
    assert again == rejects and rejects[0].at != rejects[1].at
