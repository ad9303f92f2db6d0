"""Statements of which the words do not say at once which table they change."""

from collections.abc import Iterator

import pytest

from headwater.core_log.model.changes import Phase
from scripts.embedded_mysql import embedded_mysql
from tests.connectors.mysql.conftest import KINDS, MysqlGuest
from tests.connectors.mysql.streams import run_once
from tests.connectors.mysql.test_mysql_stream import begun, check_equal, phases

REREAD = [Phase.PENDING, Phase.STARTED, Phase.COMPLETE]


async def test_a_truncate_leaves_tables_alone_whose_names_are_similar(
    mysql_guest: MysqlGuest,
) -> None:
    tables = ("t", "T", "truncate", "table")
    told = await begun(
        mysql_guest,
        *(f"CREATE TABLE `{each}` (id int PRIMARY KEY)" for each in tables),
        *(f"INSERT INTO `{each}` VALUES (1)" for each in tables),
    )

    mysql_guest.execute("TRUNCATE TABLE T")
    await run_once(mysql_guest, told)

    assert told.letters("T") == "rt"
    for each in tables:
        check_equal(told, mysql_guest, each)


@pytest.mark.parametrize(
    ("statement", "found"),
    [("TRUNCATE t", []), ("ALTER TABLE t DROP v", REREAD), ("DELETE FROM t", [])],
)
async def test_a_statement_with_settings_of_its_own_is_read(
    statement: str, found: list[Phase], mysql_guest: MysqlGuest
) -> None:
    if not mysql_guest.server.is_mariadb:
        pytest.skip("only MariaDB has SET STATEMENT")
    told = await begun(
        mysql_guest, "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 2)"
    )

    mysql_guest.execute(f"SET STATEMENT max_statement_time=60 FOR {statement}")
    await run_once(mysql_guest, told)

    check_equal(told, mysql_guest)
    assert phases(told) == found


@pytest.fixture(scope="module")
def folding_guest() -> Iterator[MysqlGuest]:
    if "mariadb" not in KINDS:
        pytest.skip("the setting has to be given to a new MySQL before its first start")
    with embedded_mysql("mariadb", settings={"lower-case-table-names": "1"}) as server:
        server.execute("CREATE DATABASE Shop")
        yield MysqlGuest(server, "shop", user="root")


async def test_letter_case_of_names_does_not_matter_where_the_server_ignores_it(
    folding_guest: MysqlGuest,
) -> None:
    told = await begun(folding_guest, "CREATE TABLE T (id int PRIMARY KEY)")
    folding_guest.execute(
        "INSERT INTO t VALUES (1)",
        "TRUNCATE TABLE Shop.T",
        "INSERT INTO T VALUES (2)",
    )
    await run_once(folding_guest, told)
    folding_guest.execute(
        "CREATE DATABASE Other",
        "CREATE TABLE Other.U (id int PRIMARY KEY)",
        "INSERT INTO Other.U VALUES (3)",
        "RENAME TABLE Other.U TO Shop.U",
    )
    await run_once(folding_guest, told)

    assert told.letters("t") == "ctc"
    for each in ("t", "u"):
        check_equal(told, folding_guest, each)
