"""Histories of a MySQL or MariaDB, and what the source makes of them."""

import asyncio
from typing import Any

import pytest

from headwater.connectors.mysql import follower
from headwater.connectors.mysql.events import held_rows
from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.source import FreeSpace, Remark, SourceReport
from headwater.core_log.foundation.errors import (
    ConfigError,
    HeadwaterError,
    PositionLost,
    SourceRejected,
)
from headwater.core_log.model.changes import ChangeBatch, Phase
from headwater.core_log.model.table_schema import TableSchema
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, running, source_context

HOUR_MS = 3_600_000
T = "CREATE TABLE t (id int PRIMARY KEY, v varchar(50), n int)"
PARTS = (
    "ALTER TABLE t PARTITION BY RANGE (id) (PARTITION low VALUES LESS THAN (2),"
    " PARTITION high VALUES LESS THAN MAXVALUE)"
)


def phases(told: MysqlStory, table: str = "t") -> list[Phase]:
    return [
        each.phase
        for batch in told.batches
        for each in batch.replacements
        if each.schema.table.name == table
    ]


def phases_of(batch: ChangeBatch) -> list[Phase]:
    return [each.phase for each in batch.replacements]


def check_equal(told: MysqlStory, guest: MysqlGuest, table: str = "t") -> None:
    names = [row[0] for row in guest.execute(f"SHOW COLUMNS FROM `{table}`")]
    expected = [
        dict(zip(names, row, strict=True)) for row in guest.execute(f"SELECT * FROM `{table}`")
    ]
    found = told.fold(table).values()
    by_id = sorted(found, key=lambda row: row["id"])

    assert by_id == sorted(expected, key=lambda row: row["id"])


async def begun(guest: MysqlGuest, *statements: str, **settings: Any) -> MysqlStory:
    guest.execute(*statements)
    return await run_once(guest, **settings)


async def test_inserts_updates_deletes_and_moves_follow_the_rows(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    mysql_guest.execute(
        "INSERT INTO t VALUES (3, 'c', 3)",
        "UPDATE t SET v = 'x' WHERE id = 1",
        "UPDATE t SET id = 20 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
    )

    await run_once(mysql_guest, told)

    assert told.letters("t") == "rr" + "cudcd"
    streamed = [each for batch in told.batches for each in batch.tables][1:]
    moves = [
        is_move
        for each in streamed
        for is_move in ([False] * len(each) if each.moves is None else each.moves.to_pylist())
    ]
    befores = [
        row for each in streamed if each.before is not None for row in each.before.to_pylist()
    ]
    assert moves == [False, False, True, True, False]
    assert {"id": 1, "v": "a", "n": 1} in befores
    check_equal(told, mysql_guest)


async def test_a_year_before_numbers_leaves_their_signs(mysql_guest: MysqlGuest) -> None:
    told = await begun(
        mysql_guest,
        "CREATE TABLE t (y year, id int PRIMARY KEY, u int unsigned, z year, s smallint)",
        "INSERT INTO t VALUES (2001, 1, 4294967295, 1999, -2)",
    )
    mysql_guest.execute("INSERT INTO t VALUES (2002, -3, 4294967294, NULL, -1), (NULL, 4, 5, 0, 6)")

    await run_once(mysql_guest, told)

    assert told.letters("t") == "r" + "cc"
    check_equal(told, mysql_guest)


async def test_a_transaction_is_one_commit_with_counted_changes(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T)
    mysql_guest.execute(
        "BEGIN", "INSERT INTO t (id) VALUES (1)", "INSERT INTO t (id) VALUES (2), (3)", "COMMIT"
    )

    await run_once(mysql_guest, told)

    [changes] = [each for batch in told.batches for each in batch.tables]
    assert isinstance(changes.commits, str) and changes.indexes is not None
    assert changes.indexes.to_pylist() == [0, 1, 2]
    assert changes.source["gtid"] == changes.commits


@pytest.mark.parametrize(
    "ddl",
    [
        ["ALTER TABLE t ADD COLUMN more int DEFAULT 7"],
        ["ALTER TABLE t DROP COLUMN n"],
        ["ALTER TABLE t MODIFY v text"],
        ["ALTER TABLE t ADD COLUMN a int, ADD COLUMN b varchar(9) AFTER id"],
        ["ALTER TABLE t RENAME COLUMN n TO m"],
        ["CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD COLUMN extra int",
         "INSERT INTO _t_gho (id, v, n) SELECT id, v, n FROM t WHERE id < 3",
         "RENAME TABLE t TO _t_del, _t_gho TO t", "DROP TABLE _t_del"],
        ["DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, other int)",
         "INSERT INTO t VALUES (2, 2), (9, 9)"],
        ["CREATE TABLE _t_new LIKE t", "ALTER TABLE _t_new DROP COLUMN n",
         "INSERT INTO _t_new SELECT id, v FROM t",
         "RENAME TABLE t TO _t_old, _t_new TO t", "DROP TABLE _t_old"],
        [PARTS, "ALTER TABLE t DROP PARTITION low"],
        [PARTS, "ALTER TABLE t TRUNCATE PARTITION low"],
        [PARTS, "CREATE TABLE x (id int PRIMARY KEY, v varchar(50), n int)",
         "INSERT INTO x VALUES (1, 'moved', 7)",
         "ALTER TABLE t EXCHANGE PARTITION low WITH TABLE x"],
        [PARTS, "ALTER TABLE t REORGANIZE PARTITION high INTO (PARTITION mid VALUES LESS THAN (3),"
         " PARTITION high VALUES LESS THAN MAXVALUE)"],
        ["ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)"],
    ],
    ids=[
        "add", "drop", "type", "order", "rename", "gh-ost", "anew", "pt-osc", "drop-partition",
        "truncate-partition", "exchange-partition", "reorganize-partition", "key",
    ],
)  # fmt: skip
async def test_the_table_equals_its_source_after_ddl(
    mysql_guest: MysqlGuest, ddl: list[str]
) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    mysql_guest.execute(
        "UPDATE t SET v = 'y' WHERE id = 1", *ddl, "DELETE FROM t WHERE id = 2",
        "INSERT INTO t (id) VALUES (50)" if "KEY (id, n)" not in ddl[0] else "DO 1",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert phases(told)[-1] is Phase.COMPLETE
    check_equal(told, mysql_guest)


@pytest.mark.parametrize("key", ["DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)", "MODIFY id bigint"])
async def test_no_change_has_another_key_before_its_reread_starts(
    mysql_guest: MysqlGuest, key: str
) -> None:
    """Neither in this life nor in the next one: one topic cannot have both keys. A truncate has
    none, and is one of the former topic."""
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")

    async with running(mysql_guest, told.positions, settle_ms=HOUR_MS) as first:
        mysql_guest.execute(
            f"ALTER TABLE t {key}", "UPDATE t SET v = 'c' WHERE id = 1", "TRUNCATE t",
            "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)",
        )  # fmt: skip
        await first.came(rows=2)
    told.take_all(first)
    assert first.letters("t") == "t"
    assert Phase.STARTED not in phases(first)
    mysql_guest.execute("INSERT INTO t VALUES (3, 'd', 3)")
    await run_once(mysql_guest, told)

    starts = [Phase.STARTED in phases_of(batch) for batch in told.batches]
    before = MysqlStory(told.batches[: starts.index(True)])
    assert before.letters("t") == "rrt"
    assert {each.schema.key for batch in before.batches for each in batch.tables} == {("id",)}
    assert Phase.COMPLETE in phases(told)
    check_equal(told, mysql_guest)


async def test_a_truncate_empties_the_table(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute("TRUNCATE TABLE t", "INSERT INTO t VALUES (2, 'b', 2)")

    await run_once(mysql_guest, told)

    assert told.letters("t") == "rtc" and not phases(told)
    check_equal(told, mysql_guest)


async def test_a_new_table_is_captured_with_its_rows(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T)
    mysql_guest.execute("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1), (2)")

    await run_once(mysql_guest, told)

    check_equal(told, mysql_guest, "u")


async def test_xa_transactions_count_when_they_are_decided(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T)
    name = mysql_guest.database
    for xid, number in ((f"'{name}k'", 1), (f"'{name}u'", 2), (f"'{name}o'", 3)):
        mysql_guest.execute(
            f"XA START {xid}", f"INSERT INTO t (id) VALUES ({number})", f"XA END {xid}",
            f"XA PREPARE {xid}",
        )  # fmt: skip
    mysql_guest.execute("INSERT INTO t (id) VALUES (10)")

    await run_once(mysql_guest, told)
    assert told.letters("t") == "c", "nothing of what is only prepared"
    mysql_guest.execute(f"XA COMMIT '{name}k'", f"XA ROLLBACK '{name}u'")
    await run_once(mysql_guest, told)
    assert [row["id"] for _, row in told.events("t")] == [10, 1]
    mysql_guest.execute("INSERT INTO t (id) VALUES (11)", f"XA COMMIT '{name}o'")
    await run_once(mysql_guest, told)

    assert [row["id"] for _, row in told.events("t")] == [10, 1, 11, 3]
    check_equal(told, mysql_guest)
    assert told.positions["xa/stream"] == ""


async def test_rows_that_were_prepared_before_the_first_position_are_read_again(
    mysql_guest: MysqlGuest,
) -> None:
    mysql_guest.execute(T, "INSERT INTO t VALUES (1, 'a', 1)")
    xid = f"'{mysql_guest.database}'"
    mysql_guest.execute(
        f"XA START {xid}", "UPDATE t SET n = 2", "INSERT INTO t (id) VALUES (2)", f"XA END {xid}",
        f"XA PREPARE {xid}",
    )  # fmt: skip
    told = await run_once(mysql_guest)
    assert [row["n"] for row in told.fold("t").values()] == [1]
    mysql_guest.execute(f"XA COMMIT {xid}")
    await run_once(mysql_guest, told)

    assert phases(told)[-1] is Phase.COMPLETE
    check_equal(told, mysql_guest)


async def test_a_large_xa_transaction_waits_in_a_file_and_is_emitted_in_parts(
    mysql_guest: MysqlGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_rows, "MEMORY_BYTES_MAX", 10_000)
    monkeypatch.setattr(follower, "ROWS_MAX", 500)
    name = mysql_guest.database
    mysql_guest.execute(T)
    told = await run_once(mysql_guest)
    inserts = [
        "INSERT INTO t VALUES "
        + ", ".join(f"({at}, 'row {at}', 0)" for at in range(first, first + 500))
        for first in range(0, 5_000, 500)
    ]
    mysql_guest.execute(
        f"XA START '{name}'", *inserts, "UPDATE t SET n = 1 WHERE id % 2 = 0",
        f"XA END '{name}'", f"XA PREPARE '{name}'", f"XA COMMIT '{name}'",
        "INSERT INTO t VALUES (-1, 'behind it', 0)",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert max(len(changes) for batch in told.batches for changes in batch.tables) < 2_000
    assert told.letters("t") == "c" * 5_000 + "u" * 2_500 + "c"
    check_equal(told, mysql_guest)


async def test_rows_without_all_columns_lead_to_a_new_reading(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    mysql_guest.execute(
        "SET binlog_row_image = MINIMAL", "UPDATE t SET n = 9 WHERE id = 1",
        "DELETE FROM t WHERE id = 2", "SET binlog_row_image = FULL",
        "INSERT INTO t VALUES (3, 'c', 3)",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert set(phases(told)) == {Phase.PENDING, Phase.STARTED, Phase.COMPLETE}
    check_equal(told, mysql_guest)


async def test_changes_logged_as_statements_lead_to_a_new_reading(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute(
        "SET binlog_format = STATEMENT", "INSERT INTO t VALUES (2, 'b', 2)",
        "SET binlog_format = ROW",
    )  # fmt: skip

    await run_once(mysql_guest, told)

    assert phases(told)[-1] is Phase.COMPLETE
    check_equal(told, mysql_guest)


async def test_a_large_transaction_is_emitted_in_parts_with_one_position(
    mysql_guest: MysqlGuest,
) -> None:
    told = await begun(mysql_guest, T, "SET GLOBAL max_allowed_packet = 64 << 20")
    rows = ", ".join(f"({number}, 'v', 1)" for number in range(50_000))
    mysql_guest.execute(f"INSERT INTO t VALUES {rows}")
    before = len(told.batches)

    await run_once(mysql_guest, told)

    parts = [batch for batch in told.batches[before:] if batch.tables]
    assert len(parts) > 1 and not any(batch.positions for batch in parts[:-1])
    assert len(told.fold("t")) == 50_000


@pytest.mark.parametrize("parallel", [1, 3])
async def test_chunks_that_are_read_while_rows_change_end_equal(
    mysql_guest: MysqlGuest, parallel: int
) -> None:
    snapshot = {"chunk_rows": 100, "parallel": parallel}
    rows = ", ".join(f"({number}, 'v', 1)" for number in range(3_000))
    mysql_guest.execute(T, f"INSERT INTO t VALUES {rows}")
    stop = asyncio.Event()

    def write(number: int) -> None:
        mysql_guest.execute(
            f"UPDATE t SET n = n + 1 WHERE id % 37 = {number % 37}",
            f"DELETE FROM t WHERE id = {number * 7 % 3_000}",
            f"REPLACE INTO t VALUES ({number * 11 % 4_000}, 'new', {number})",
            f"UPDATE t SET id = id + 10000 WHERE id = {number * 13 % 3_000}",
        )

    async def write_on() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await asyncio.to_thread(write, number)

    writing = asyncio.ensure_future(write_on())
    told = MysqlStory()
    for _ in range(4):  # interrupted at any moment, and resumed
        async with running(mysql_guest, told.positions, snapshot=snapshot) as more:
            await more.came(rows=250)
        keep_whole(told, more)
    stop.set()
    await writing

    await run_once(mysql_guest, told, snapshot=snapshot)

    check_equal(told, mysql_guest)


@pytest.mark.parametrize(
    "key",
    [
        "bigint unsigned", "varchar(20) COLLATE utf8mb4_general_ci", "varbinary(20)",
        "enum('c', 'a', 'b')", "decimal(20,3)", "datetime(3)", "bit(9)",
        f"set({', '.join(map(repr, map(str, range(64))))})",
    ],
    ids=lambda kind: kind.partition("(")[0].partition(" ")[0],
)  # fmt: skip
async def test_chunks_by_keys_of_every_type_have_each_row_once_and_in_order(
    mysql_guest: MysqlGuest, key: str
) -> None:
    values = {
        "varchar": "CONCAT(CHAR(97 + n % 26), 'ö', n)",
        "varbinary": "UNHEX(LPAD(HEX(n * 7), 6, 0))",
        "enum": "1 + n % 3",
        "set": "CAST(9223372036854775808 AS UNSIGNED) + n % 7",
        "decimal": "n / 8 - 9",
        "datetime": "'2026-01-01' + INTERVAL n SECOND",
    }
    made = next((text for kind, text in values.items() if key.startswith(kind)), "n % 500")
    mysql_guest.execute(
        f"CREATE TABLE t (k {key}, id int, v varchar(9), PRIMARY KEY (k, id))",
        "CREATE TABLE numbers (n int PRIMARY KEY)",
        f"INSERT INTO numbers VALUES {', '.join(f'({n})' for n in range(503))}",
        f"INSERT INTO t SELECT {made}, n, 'v' FROM numbers",
    )
    tables = [f"{mysql_guest.database}.t"]

    told = await run_once(mysql_guest, tables=tables, snapshot={"chunk_rows": 17, "parallel": 4})

    ids = [row["id"] for _, row in told.events("t")]
    assert ids == [id for (id,) in mysql_guest.execute("SELECT id FROM t ORDER BY k, id")]


def keep_whole(told: MysqlStory, more: MysqlStory) -> None:
    """What the log would keep: batches up to the last one with a position."""
    places = [at for at, batch in enumerate(more.batches) if batch.positions]
    for batch in more.batches[: places[-1] + 1 if places else 0]:
        told.take(batch)


async def test_a_purged_position_is_said_or_read_again(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    mysql_guest.execute("DELETE FROM t WHERE id = 1", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    [*older, [newest, *_]] = mysql_guest.execute("SHOW BINARY LOGS")
    while older:  # a reader that has just gone may still hold one
        mysql_guest.execute(f"PURGE BINARY LOGS TO '{newest}'")
        [*older, _] = mysql_guest.execute("SHOW BINARY LOGS")

    with pytest.raises(PositionLost, match="purged"):
        await run_once(mysql_guest, told)
    await run_once(mysql_guest, told, position_mismatch="resnapshot")

    check_equal(told, mysql_guest)


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_format", "MIXED", "ROW"),
    ],
)
async def test_a_server_with_other_settings_is_refused_with_the_statement(
    mysql_guest: MysqlGuest, name: str, wrong: str, right: str
) -> None:
    mysql_guest.execute(T, f"SET GLOBAL {name} = {wrong}")
    try:
        with pytest.raises(SourceRejected, match=name) as caught:
            await run_once(mysql_guest)
        [finding] = [
            each
            for each in await MysqlSource(mysql_guest.settings(), source_context()).examine()
            if each.is_fatal
        ]
    finally:
        mysql_guest.execute(f"SET GLOBAL {name} = {right}")

    assert caught.value.hint == finding.hint == f"SET GLOBAL {name} = '{right}'"


async def test_a_table_that_was_gone_or_left_out_is_read_again(mysql_guest: MysqlGuest) -> None:
    only = {"tables": [f"{mysql_guest.database}.u"]}
    told = await begun(
        mysql_guest, T, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    mysql_guest.execute("DROP TABLE t")
    await run_once(mysql_guest, told)
    mysql_guest.execute(T, "INSERT INTO t VALUES (2, 'b', 2)")
    await run_once(mysql_guest, told)
    check_equal(told, mysql_guest)
    await run_once(mysql_guest, told, **only)
    mysql_guest.execute("UPDATE t SET v = 'missed'", "INSERT INTO t VALUES (3, 'c', 3)")
    await run_once(mysql_guest, told, **only)
    mysql_guest.execute("DELETE FROM t WHERE id = 3")

    await run_once(mysql_guest, told)

    check_equal(told, mysql_guest)


async def test_a_reread_is_stored_with_the_position_of_its_ddl(mysql_guest: MysqlGuest) -> None:
    """A source that is killed right behind the DDL still reads the table again."""
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2)")
    before = len(told.batches)
    mysql_guest.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 3")
    await run_once(mysql_guest, told)
    streams = [
        batch.positions["stream"] for batch in told.batches[before:] if "stream" in batch.positions
    ]
    first = next(batch for batch in told.batches[before:] if batch.replacements)

    assert first.positions["stream"] == streams[-1]
    assert f"form/{mysql_guest.database}.t" in first.positions


async def test_a_stream_without_rows_stops_where_rows_are_needed(mysql_guest: MysqlGuest) -> None:
    never, initial = {"snapshot": {"mode": "never"}}, {"snapshot": {"mode": "initial"}}
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)", **never)
    mysql_guest.execute("INSERT INTO t VALUES (2, 'b', 2)")
    await run_once(mysql_guest, told, **never)
    assert told.letters("t") == "c"
    mysql_guest.execute("ALTER TABLE t ADD COLUMN more int")

    with pytest.raises(SourceRejected, match="never"):
        await run_once(mysql_guest, told, **never)
    await run_once(mysql_guest, told, **initial)

    check_equal(told, mysql_guest)


async def test_a_table_that_loses_a_hidden_column_is_left_out_alone_until_it_is_back(
    mysql_guest: MysqlGuest,
) -> None:
    said = list[Remark]()

    async def refusal(schema: TableSchema, *, is_next: bool = False) -> HeadwaterError | None:
        is_hidden = schema.table.name != "t" or "v" in schema.names
        return None if is_hidden else ConfigError("the masked column v is gone", hint="mask w")

    def report(each: SourceReport) -> None:
        if isinstance(each, Remark) and each.finding is not None:
            said.append(each)

    rules = {"refusal": refusal, "report": report}
    told = await begun(
        mysql_guest, T, "CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO t VALUES (1, 'a', 1)"
    )
    mysql_guest.execute(
        "INSERT INTO t VALUES (2, 'b', 2)",
        "ALTER TABLE t RENAME COLUMN v TO w",
        "INSERT INTO t VALUES (3, 'c', 3)",
        "INSERT INTO u VALUES (1)",
    )
    await run_once(mysql_guest, told, rules)
    mysql_guest.execute("INSERT INTO t VALUES (4, 'd', 4)", "INSERT INTO u VALUES (2)")
    await run_once(mysql_guest, told, rules)

    check_equal(told, mysql_guest, "u")
    assert [row for _, row in told.events("t")] == [
        {"id": 1, "v": "a", "n": 1},
        {"id": 2, "v": "b", "n": 2},
    ]
    assert {each.finding.left_out for each in said if each.finding is not None} == {
        (f"{mysql_guest.database}.t",)
    }

    mysql_guest.execute("ALTER TABLE t RENAME COLUMN w TO v", "DELETE FROM t WHERE id = 1")
    await run_once(mysql_guest, told, rules)
    check_equal(told, mysql_guest)


async def test_a_table_with_more_rows_than_may_be_read_again_waits_for_a_person(
    mysql_guest: MysqlGuest,
) -> None:
    rows = ", ".join(f"({number}, 'a', 1)" for number in range(300))
    told = await begun(mysql_guest, T, f"INSERT INTO t VALUES {rows}", "ANALYZE TABLE t")
    mysql_guest.execute("ALTER TABLE t MODIFY n bigint", "DELETE FROM t WHERE id = 7")

    await run_once(mysql_guest, told, snapshot={"reread_max_rows": 10})
    [pending, quarantined] = [each for batch in told.batches for each in batch.replacements]
    await run_once(mysql_guest, told, snapshot={"reread_max_rows": 10_000})

    assert (pending.phase, quarantined.phase) == (Phase.PENDING, Phase.QUARANTINED)
    assert "`snapshot.reread_max_rows` is 10" in quarantined.why
    assert f"headwater snapshot start shop/{mysql_guest.database}.t" in quarantined.why
    check_equal(told, mysql_guest)


async def test_a_forbidden_change_waits_for_a_person(mysql_guest: MysqlGuest) -> None:
    rules = {"schema_changes": {"drop_column": "fail"}}
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)")
    mysql_guest.execute("ALTER TABLE t DROP COLUMN n", "INSERT INTO t VALUES (2, 'b')")
    await run_once(mysql_guest, told, rules)

    assert phases(told) == [Phase.QUARANTINED]


@pytest.mark.parametrize("how", ["dropped", "renamed", "not in the file"])
async def test_a_held_table_that_is_not_captured_any_more_is_not_waited_for(
    mysql_guest: MysqlGuest, how: str
) -> None:
    rules = {"schema_changes": {"drop_column": "fail"}}
    both = {"tables": [f"{mysql_guest.database}.{name}" for name in ("t", "others")]}
    others = "CREATE TABLE others (id int PRIMARY KEY)"
    told = await begun(mysql_guest, T, others, "INSERT INTO t VALUES (1, 'a', 1)", **both)
    mysql_guest.execute("ALTER TABLE t DROP COLUMN n", "INSERT INTO t VALUES (2, 'b')")
    await run_once(mysql_guest, told, rules, **both)
    was_held = phases(told)[-1] is Phase.QUARANTINED

    if how == "renamed":
        mysql_guest.execute("RENAME TABLE t TO goods")
    elif how == "dropped":
        mysql_guest.execute("DROP TABLE t")
    else:
        both["tables"].remove(f"{mysql_guest.database}.t")
    await run_once(mysql_guest, told, rules, **both)

    assert was_held
    assert phases(told)[-1] is Phase.GONE


async def test_a_table_for_which_there_is_no_room_waits_for_a_person(
    mysql_guest: MysqlGuest,
) -> None:
    told = await begun(mysql_guest, T, "INSERT INTO t VALUES (1, 'a', 1)", "ANALYZE TABLE t")
    mysql_guest.execute("ALTER TABLE t MODIFY n bigint")

    await run_once(mysql_guest, told, {"free_space": lambda: [FreeSpace(("the log",), 100)]})

    assert phases(told)[-1] is Phase.QUARANTINED
