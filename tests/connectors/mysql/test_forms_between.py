"""Changes of a table in a form that is neither the stored nor the present one."""

from contextlib import aclosing
from typing import Any

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.core_log.model.changes import Phase
from headwater.core_log.model.table_schema import Column, TableSchema
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, source_context
from tests.connectors.mysql.test_mysql_stream import T, begun, check_equal

WIDE = """
 e enum('a,b','c'), s set('x','y'), d decimal(12,3) unsigned, big bigint unsigned, tiny tinyint,
 m mediumint unsigned, f float, g double, y year, day date, dt datetime(3), ts timestamp(6) NULL,
 tm time(2), ti time, c char(4) CHARACTER SET latin1, l varchar(10) CHARACTER SET latin1,
 vb varbinary(41), b5 binary(5), bl blob, lt longtext, j json, b1 bit(1), b9 bit(9), p point,
 geo geometry
"""
VALUES = """
 'a,b', 'x,y', 12.5, 18446744073709551615, -3, 9, 1.5, 2.25, 2024, '2024-02-03',
 '2024-02-03 04:05:06.789', '2024-02-03 04:05:06.123456', '-01:02:03.45', '10:00:00', 'h\u00e9',
 '\u00e9t\u00e9', x'00ff', x'0102', x'aa', 'long', '{"a": 1}', 1, 257,
 ST_GeomFromText('POINT(1 2)'), ST_GeomFromText('LINESTRING(0 0, 1 1)')
"""


def rows_between(told: MysqlStory, table: str = "t") -> list[tuple[str, Any]]:
    """Streamed changes, without those that were read."""
    return [each for each in told.events(table) if each[0] not in "r"]


def columns_of(told: MysqlStory, table: str, *, id: int) -> dict[str, Column]:
    """Columns under which the streamed row came, without the nullability of the table's own."""
    [schema] = [
        changes.schema
        for batch in told.batches
        for changes in batch.tables
        if changes.schema.table.name == table and id in changes.rows.column("id").to_pylist()
    ][:1]
    return {column.name: column for column in schema.columns}


async def test_rows_of_a_form_between_come_with_the_columns_that_they_had(
    mysql_guest: MysqlGuest,
) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "ALTER TABLE t ADD between_ int",
        "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "INSERT INTO t VALUES (3, 'gone', 3, 33)",
        "DELETE FROM t WHERE id = 3",
        "UPDATE t SET between_ = 11 WHERE id = 1",
        "ALTER TABLE t DROP between_, RENAME COLUMN v TO w",
        "INSERT INTO t VALUES (4, 'd', 4)",
    )

    await run_once(mysql_guest, told)

    assert rows_between(told) == [
        ("c", {"id": 2, "v": "b", "n": 2, "between_": 22}),
        ("c", {"id": 3, "v": "gone", "n": 3, "between_": 33}),
        ("d", {"id": 3, "v": "gone", "n": 3, "between_": 33}),
        ("u", {"id": 1, "v": "a", "n": 1, "between_": 11}),
        ("c", {"id": 4, "w": "d", "n": 4}),
    ]
    check_equal(told, mysql_guest)


async def test_a_form_between_is_read_as_if_the_table_had_it_now(mysql_guest: MysqlGuest) -> None:
    """Every type: the same table, captured while it has the form, says what is right."""
    same = f"CREATE TABLE same (id int PRIMARY KEY, v varchar(50), n int, {WIDE})"
    told = await begun(mysql_guest, T, same)
    names = ", ".join(part.split()[0] for part in _parts(WIDE))
    mysql_guest.execute(
        *(f"ALTER TABLE t ADD {part}" for part in _parts(WIDE)),
        f"INSERT INTO t VALUES (2, 'b', 2, {VALUES})",
        "INSERT INTO same SELECT * FROM t WHERE id = 2",
        "ALTER TABLE t " + ", ".join(f"DROP {name}" for name in names.split(", ")),
        "DELETE FROM t",
    )

    await run_once(mysql_guest, told)

    [(_, expected)] = rows_between(told, "same")
    assert ("c", expected) in rows_between(told)
    assert columns_of(told, "t", id=2) == columns_of(told, "same", id=2)
    check_equal(told, mysql_guest)


def _parts(columns: str) -> list[str]:
    """Definitions, separated at commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [" ".join(part.split()) for part in parts]


async def test_rows_come_in_the_order_of_the_log_across_forms(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 0)")
    statements = list[str]()
    for number in range(1, 9):
        statements += [
            f"UPDATE t SET n = {number} WHERE id = 1",
            f"ALTER TABLE t ADD c{number} int",
        ]
    mysql_guest.execute(*statements)

    await run_once(mysql_guest, told)

    assert [row["n"] for letter, row in rows_between(told)] == list(range(1, 9))
    check_equal(told, mysql_guest)


async def test_a_source_that_stopped_between_two_forms_goes_on_without_a_gap(
    mysql_guest: MysqlGuest,
) -> None:
    """It stops right behind each batch in turn."""
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "ALTER TABLE t ADD b int", "INSERT INTO t VALUES (3, 'c', 3, 33, 333)",
        "ALTER TABLE t DROP a", "INSERT INTO t VALUES (4, 'd', 4, 444)",
        "ALTER TABLE t DROP b",
    )  # fmt: skip

    while not await one_batch(mysql_guest, told):
        pass

    assert [row for letter, row in told.events("t") if letter == "c"] == [
        {"id": 2, "v": "b", "n": 2, "a": 22},
        {"id": 3, "v": "c", "n": 3, "a": 33, "b": 333},
        {"id": 4, "v": "d", "n": 4, "b": 444},
    ]
    check_equal(told, mysql_guest)


async def one_batch(guest: MysqlGuest, told: MysqlStory) -> bool:
    """Whether the source has ended before a batch came that goes beyond what was told."""
    source = MysqlSource(guest.settings(), source_context(until_end=True))
    before = dict(told.positions)
    async with aclosing(source.changes(before)) as batches:
        async for batch in batches:
            told.take(batch)
            if batch.positions and told.positions != before:
                return False
    return True


@pytest.mark.parametrize("key", ["ADD PRIMARY KEY (id, n)", "ADD PRIMARY KEY (n)"])
async def test_rows_before_a_change_of_the_key_come_under_the_former_key(
    mysql_guest: MysqlGuest, key: str
) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    before = len(told.batches)
    mysql_guest.execute(
        "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (3, 'c', 3, 33)",
        f"ALTER TABLE t DROP PRIMARY KEY, {key}", "INSERT INTO t VALUES (4, 'd', 4, 44)",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    streamed = list[tuple[tuple[str, ...], int]]()
    for batch in told.batches[before:]:
        if any(each.phase is Phase.STARTED for each in batch.replacements):
            break
        streamed += [
            (changes.schema.key, id)
            for changes in batch.tables
            for id in changes.rows.column("id").to_pylist()
        ]
    assert streamed == [(("id",), 2), (("id",), 3)]
    check_equal(told, mysql_guest)


async def test_rows_that_were_logged_without_names_are_left_out_and_read_again(
    mysql_guest: MysqlGuest,
) -> None:
    """Two columns of one type: nothing says which of them a row without names means."""
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute("ALTER TABLE t ADD a int", "SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        mysql_guest.execute("INSERT INTO t VALUES (2, 'b', 2, 22)")
    finally:
        mysql_guest.execute("SET GLOBAL binlog_row_metadata = 'FULL'")
    mysql_guest.execute("ALTER TABLE t ADD b int FIRST", "UPDATE t SET n = 5 WHERE id = 1")

    await run_once(mysql_guest, told)

    assert [letter for letter, _ in rows_between(told)] == ["u"]
    check_equal(told, mysql_guest)


async def test_rows_of_a_form_that_would_show_a_hidden_column_are_left_out(
    mysql_guest: MysqlGuest,
) -> None:
    async def refusal(schema: TableSchema, *, is_next: bool = False) -> HeadwaterError | None:
        if "v" in schema.names:
            return None
        return ConfigError("the masked column v is gone", hint="mask w")

    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "ALTER TABLE t RENAME COLUMN v TO w", "INSERT INTO t VALUES (3, 'secret', 3, 33)",
        "ALTER TABLE t RENAME COLUMN w TO v", "DELETE FROM t WHERE id = 3",
    )  # fmt: skip

    await run_once(mysql_guest, told, {"refusal": refusal})

    assert "secret" not in {row.get("w") for _, row in told.events("t")}
    assert [row["id"] for letter, row in rows_between(told) if letter == "c"] == [2]
    check_equal(told, mysql_guest)


async def test_rows_before_a_drop_come_whatever_form_they_have(mysql_guest: MysqlGuest) -> None:
    """The table is gone when the source looks at it."""
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "ALTER TABLE t DROP n", "INSERT INTO t VALUES (3, 'c', 33)",
        "DROP TABLE t",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert rows_between(told) == [
        ("c", {"id": 2, "v": "b", "n": 2, "a": 22}),
        ("c", {"id": 3, "v": "c", "a": 33}),
    ]


async def test_rows_before_a_table_lost_its_key_come(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "ALTER TABLE t ADD a int", "INSERT INTO t VALUES (2, 'b', 2, 22)",
        "ALTER TABLE t DROP PRIMARY KEY", "INSERT INTO t VALUES (2, 'left out', 2, 22)",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert rows_between(told) == [("c", {"id": 2, "v": "b", "n": 2, "a": 22})]
    mysql_guest.execute("DELETE FROM t WHERE v = 'b'", "ALTER TABLE t ADD PRIMARY KEY (id)")
    await run_once(mysql_guest, told)
    check_equal(told, mysql_guest)
