"""Prepared XA transactions over restarts: their rows are read again, or their tables are."""

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.core_log.model.changes import Phase
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, source_context
from tests.connectors.mysql.test_mysql_stream import begun, check_equal, phases

PREPARED = ("XA START '{0}'", "INSERT INTO t VALUES (2)", "XA END '{0}'", "XA PREPARE '{0}'")


async def prepared(guest: MysqlGuest) -> MysqlStory:
    """Everything up to a transaction that is prepared under the name of its database."""
    told = await begun(guest, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    guest.execute(*(each.format(guest.database) for each in PREPARED))
    guest.execute("INSERT INTO t VALUES (3)")
    return await run_once(guest, told)


async def test_a_kill_while_its_rows_are_read_again_forgets_no_prepared_transaction(
    mysql_guest: MysqlGuest,
) -> None:
    told = await prepared(mysql_guest)
    batches = MysqlSource(mysql_guest.settings(), source_context()).changes(dict(told.positions))
    told.take(await anext(batches))
    await batches.aclose()
    mysql_guest.execute(f"XA COMMIT '{mysql_guest.database}'")

    await run_once(mysql_guest, told)

    assert told.letters("t") == "rcc" and not phases(told)
    check_equal(told, mysql_guest)


async def test_a_prepared_transaction_whose_rows_are_purged_stops_nothing(
    mysql_guest: MysqlGuest, caplog: pytest.LogCaptureFixture
) -> None:
    told = await prepared(mysql_guest)
    mysql_guest.execute("FLUSH BINARY LOGS", "INSERT INTO t VALUES (4)")
    await run_once(mysql_guest, told)
    [*older, [newest, *_]] = mysql_guest.execute("SHOW BINARY LOGS")
    while older:  # a reader that has just gone may still hold one
        mysql_guest.execute(f"PURGE BINARY LOGS TO '{newest}'")
        [*older, _] = mysql_guest.execute("SHOW BINARY LOGS")
    mysql_guest.execute("INSERT INTO t VALUES (5)")

    await run_once(mysql_guest, told)
    before = told.letters("t")
    mysql_guest.execute(f"XA COMMIT '{mysql_guest.database}'")
    await run_once(mysql_guest, told)

    assert "prepared XA transactions cannot be read any more" in caplog.text
    assert before == "rccc" and phases(told)[-1] is Phase.COMPLETE
    check_equal(told, mysql_guest)
