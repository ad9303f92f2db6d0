"""Events that few servers write, connections that end, and servers that clash."""

import asyncio
import json

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.foundation.errors import PositionLost, SourceRejected, SourceUnavailable
from scripts.embedded_mysql import embedded_mysql
from tests.connectors.mysql.conftest import KINDS, MysqlGuest
from tests.connectors.mysql.streams import run_once, running, source_context
from tests.connectors.mysql.test_mysql_stream import T, begun, check_equal, phases


@pytest.fixture
def mysql(mysql_guest: MysqlGuest) -> MysqlGuest:
    if mysql_guest.server.is_mariadb:
        pytest.skip("MariaDB has no such events")
    return mysql_guest


@pytest.fixture
def maria(mysql_guest: MysqlGuest) -> MysqlGuest:
    if not mysql_guest.server.is_mariadb:
        pytest.skip("MySQL has no such events")
    return mysql_guest


async def test_partial_json_compressed_transactions_and_tags_are_read(mysql: MysqlGuest) -> None:
    told = await begun(
        mysql,
        "CREATE TABLE t (id int PRIMARY KEY, j json, other json)",
        """INSERT INTO t VALUES (1, '{"a": [1, 2], "b": {"c": "long enough text"}}', '[1]')""",
    )
    is_new = mysql.server.kind == "mysql-9"
    mysql.execute(
        "SET binlog_row_value_options = PARTIAL_JSON",
        "UPDATE t SET j = JSON_SET(j, '$.a[1]', 7, '$.b.c', 'x'), other = JSON_ARRAY(2)",
        "UPDATE t SET j = JSON_REMOVE(j, '$.a[0]')",
        "UPDATE t SET j = JSON_SET(j, '$.b', CAST('{\"q\": 1.50}' AS JSON))",
        *(["SET binlog_transaction_compression = ON"] if is_new else []),
        """INSERT INTO t VALUES (2, '{"z": 1}', NULL)""",
        *(["SET gtid_next = 'AUTOMATIC:tag_a'"] if is_new else []),
        "INSERT INTO t VALUES (3, '[]', NULL)",
    )

    await run_once(mysql, told)
    mysql.execute("INSERT INTO t VALUES (4, '[]', NULL)")
    await run_once(mysql, told)

    assert told.letters("t") == "ruuuccc" and not phases(told)
    rows = mysql.execute("SELECT id, CAST(j AS CHAR) FROM t ORDER BY id")
    found = sorted(told.fold("t").values(), key=lambda row: row["id"])
    assert [(row["id"], row["j"]) for row in found] == rows
    assert json.loads(found[0]["j"]) == {"a": [7], "b": {"q": 1.5}}
    assert ("tag_a" in told.positions["stream"]) == is_new


async def test_compressed_events_and_columns_of_mariadb_are_read(maria: MysqlGuest) -> None:
    told = await begun(
        maria, "CREATE TABLE t (id int PRIMARY KEY, v varchar(500) COMPRESSED, x text)"
    )
    maria.execute("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
    try:
        maria.execute(
            "INSERT INTO t VALUES (1, REPEAT('v', 400), REPEAT('t', 4000)), (2, '', 'short')",
            "UPDATE t SET x = REPEAT('u', 300) WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        )
    finally:
        maria.execute("SET GLOBAL log_bin_compress = OFF")

    await run_once(maria, told)

    assert told.letters("t") == "ccud"
    check_equal(told, maria)


async def test_generated_columns_follow_their_server(mysql_guest: MysqlGuest) -> None:
    """MariaDB leaves them out of some changes, so that they are not captured there."""
    told = await begun(
        mysql_guest,
        "CREATE TABLE t (id int PRIMARY KEY, n int, g int AS (n * 2) STORED)",
        "INSERT INTO t (id, n) VALUES (1, 1)",
    )
    mysql_guest.execute(
        "UPDATE t SET n = 5", "INSERT INTO t (id, n) VALUES (2, 2)", "DELETE FROM t WHERE id = 2"
    )

    await run_once(mysql_guest, told)

    expected = {"id": 1, "n": 5} | ({} if mysql_guest.server.is_mariadb else {"g": 10})
    assert [*told.fold("t").values()] == [expected]
    assert told.letters("t") == "rucd" and not phases(told)


async def test_a_stream_that_is_cut_goes_on_where_it_was(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T)
    with pytest.raises(SourceUnavailable):
        async with running(mysql_guest, told.positions) as more:
            mysql_guest.execute("INSERT INTO t VALUES (1, 'a', 1)")
            await more.came(rows=1)
            mysql_guest.execute(*(f"KILL {dump}" for dump in dumps_of(mysql_guest)))
            await more.ended()
    for batch in more.batches:
        told.take(batch)
    mysql_guest.execute("INSERT INTO t VALUES (2, 'b', 2)")

    await run_once(mysql_guest, told)

    assert told.letters("t") == "cc"
    check_equal(told, mysql_guest)


def dumps_of(guest: MysqlGuest) -> list[int]:
    rows = guest.execute("SHOW PROCESSLIST")
    return [int(row[0]) for row in rows if str(row[4]).startswith("Binlog Dump")]


async def test_two_readers_with_one_server_id_are_told_so(mysql_guest: MysqlGuest) -> None:
    told = await begun(mysql_guest, T)
    with pytest.raises(SourceRejected, match="same server id"):
        async with running(mysql_guest, told.positions, server_id=77) as one:
            mysql_guest.execute("INSERT INTO t VALUES (1, 'a', 1)")
            await one.came(rows=1)
            async with running(mysql_guest, told.positions, server_id=77) as other:
                await other.came(rows=1)
                await one.ended()


async def test_a_position_of_a_server_that_lost_its_history_is_lost(mysql: MysqlGuest) -> None:
    told = await begun(mysql, T, "INSERT INTO t VALUES (1, 'a', 1)")
    uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    stream = f"{told.positions['stream']},{uuid}:1-5"

    with pytest.raises(PositionLost, match="lacks transactions") as caught:
        told.positions["stream"] = stream
        await run_once(mysql, told)
    [finding] = await MysqlSource(mysql.settings(), source_context()).examine_position(
        lambda: asyncio.sleep(0, told.positions)
    )

    assert caught.value.facts["missing"] == f"{uuid}:1-5"
    assert "lacks transactions" in finding.problem


async def test_the_doctor_names_tables_that_foreign_keys_change_unseen(
    mysql_guest: MysqlGuest,
) -> None:
    rule = "FOREIGN KEY (p) REFERENCES parent (id)"
    mysql_guest.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        f"CREATE TABLE child (id int PRIMARY KEY, p int, {rule} ON DELETE CASCADE)",
        f"CREATE TABLE other (id int PRIMARY KEY, p int, {rule})",
    )

    findings = await MysqlSource(mysql_guest.settings(), source_context()).examine()

    named = [each.problem for each in findings if "foreign keys" in each.problem]
    is_logged = mysql_guest.server.kind == "mysql-9"
    assert len(named) == (0 if is_logged else 1)
    assert is_logged or f"rows of {mysql_guest.database}.child can" in named[0]


@pytest.mark.slow
@pytest.mark.parametrize("files", [0, 3])
async def test_a_server_whose_log_was_reset_is_no_continuation_though_it_has_as_many_gtids(
    files: int,
) -> None:
    if "mysql-9" not in KINDS:
        pytest.skip("MariaDB has no uuid, by which its servers could be told apart")
    with embedded_mysql("mysql-9") as server:
        server.execute("CREATE DATABASE shop")
        guest = MysqlGuest(server, "shop", user="root")
        told = await begun(guest, T, *["FLUSH BINARY LOGS"] * files)
        guest.execute("INSERT INTO t VALUES (1, 'a', 1)")
        await run_once(guest, told)
        guest.execute("DO SLEEP(1.1)", "RESET BINARY LOGS AND GTIDS")
        guest.execute(*(f"INSERT INTO t VALUES ({at}, 'b', {at})" for at in range(2, 20)))

        with pytest.raises(PositionLost, match="was reset" if files else "created anew"):
            await run_once(guest, told)
        await run_once(guest, told, position_mismatch="resnapshot")

        check_equal(told, guest)
