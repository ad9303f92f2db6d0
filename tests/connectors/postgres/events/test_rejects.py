"""A value that no column of ours holds costs its row, which is set aside, and nobody else."""

import orjson
import pyarrow as pa
import pytest

from headwater.connectors.postgres.events.rejects import sifted_rows
from headwater.connectors.postgres.types.column_reader import ColumnPlan
from headwater.core_log.model.changes import ChangeBatch
from headwater.core_log.model.table_schema import Column, TableId
from headwater.core_log.rows.codec import codec_for
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.core_log.rows.settings import WireSettings
from tests.databases import Guest
from tests.debezium.headwater_capture import LAST, reading

TABLE = (
    "CREATE TABLE t (id int4 PRIMARY KEY, n numeric(10,2), at timestamp, name text)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
    f"CREATE TABLE {LAST} (id int4 PRIMARY KEY)",
)
THERE = (
    "INSERT INTO t VALUES (1, 1.5, '-infinity', 'fits'), (2, 'NaN', NULL, 'secret'),"
    " (3, NULL, NULL, ''), (6, 1, '294276-12-31 23:59:59.5', 'late')"
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

    async with reading(guest.url, "plain", decimal="precise") as found:
        await found.streaming()
        await guest.run(*LATER)
        await found.ended

    assert rows(found.batches) == [("r", 1), ("r", 3), ("c", 5), ("u", 1), ("d", 4)]
    befores = [
        row
        for batch in found.batches
        for changes in batch.tables
        if changes.before is not None
        for row in changes.before.to_pylist()
    ]
    assert not any(befores), "a row that had such a value is not one that had a null"
    rejects = [reject for batch in found.batches for reject in batch.rejects]
    assert [orjson.loads(each.content) for each in rejects] == [
        {"id": "2", "n": "NaN"},
        {"id": "6", "at": "294276-12-31 23:59:59.5"},
        {"id": "4", "at": "294270-01-01 00:00:00"},
        {"id": "1", "n": "NaN"},
    ]
    nan = "column n is decimal(10,2) and the text is not a number"
    far = "column at is timestamp(us) and the text is a moment out of range"
    assert [each.problem for each in rejects] == [nan, far, far, nan]
    assert len({each.at for each in rejects}) == len(rejects)


@pytest.mark.parametrize(("mode", "word"), [("string", "NAN"), ("double", "NaN")])
async def test_a_nan_is_written_as_debezium_does_where_the_mode_has_a_word_for_it(
    guest: Guest, mode: str, word: str
) -> None:
    guest.execute(
        "CREATE TABLE t (id int4 PRIMARY KEY, n numeric(10,2), many numeric(4,1)[])",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"CREATE TABLE {LAST} (id int4 PRIMARY KEY)",
        "INSERT INTO t VALUES (1, 'NaN', '{1,NaN}'), (2, 1.5, '{}')",
    )
    guest.publish()

    async with reading(guest.url, "plain", decimal=mode) as found:
        await found.streaming()
        statements = (
            "INSERT INTO t VALUES (3, 'NaN', '{NaN,NULL}'), (4, 1.5, NULL)",
            "UPDATE t SET n = 7 WHERE id = 3",
            f"INSERT INTO {LAST} VALUES (1)",
        )
        await guest.run(*statements)
        await found.ended

    assert not [reject for batch in found.batches for reject in batch.rejects]
    written = codec_for(WireSettings.model_validate({"decimal": mode}), topic="t")
    pieces = [each for batch in found.batches for each in batch.tables]
    of_t = [each for each in pieces if each.schema.table.name == "t"]
    assert len({str(declare_nan_columns(each.schema)) for each in of_t}) == 1, (
        "the log keeps one schema"
    )
    encoded = [written.encode(each, now_us=1).values.to_pylist() for each in of_t]
    events = [orjson.loads(value) for values in encoded for value in values]
    shown = [(each["op"], each["after"]["id"], each["after"]["n"]) for each in events]
    half, seven = ("1.50", "7.00") if mode == "string" else (1.5, 7.0)
    assert shown == [
        ("r", 1, word), ("r", 2, half), ("c", 3, word), ("c", 4, half), ("u", 3, seven),
    ]  # fmt: skip
    assert events[-1]["before"]["n"] == word and events[0]["after"]["many"][1] == word


def test_a_row_that_is_read_twice_is_set_aside_in_the_same_place() -> None:
    kind = pa.decimal128(5, 2)
    columns = [Column("id", pa.string()), Column("n", kind), Column("name", pa.string())]
    plans = [
        ColumnPlan(column, lambda text, column=column: text.cast(column.type), pa.scalar(None))  # type: ignore[misc]
        for column in columns
    ]
    numbers = pa.array(["1.5", "NaN", None, "1234567"])
    texts = [pa.array(["a", "b", "c", "d"]), numbers, pa.array(["secret"] * 4)]

    kept, rejects, keys = sifted_rows(texts, plans, TableId("s", "t"), ("id",))
    _, again, _ = sifted_rows(texts, plans, TableId("s", "t"), ("id",))

    assert [text.to_pylist() for text in kept] == [["a", "c"], ["1.5", None], ["secret"] * 2]
    assert [each.content for each in rejects] == [
        b'{"id":"b","n":"NaN"}',
        b'{"id":"d","n":"1234567"}',
    ]
    assert keys["id"].to_pylist() == ["b", "d"]
    assert again == rejects and rejects[0].at != rejects[1].at
