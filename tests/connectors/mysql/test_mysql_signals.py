"""Signals to a snapshot of MySQL: paused, resumed, stopped, started again, and refused."""

from contextlib import aclosing

import pytest

from headwater.connectors.mysql.source import MysqlSource
from headwater.connectors.snapshot.time_window import PAUSED
from headwater.connectors.source import Control, Remark, SourceReport
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.table_schema import TableId
from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.streams import MysqlStory, run_once, source_context

T = "CREATE TABLE t (id int PRIMARY KEY, v varchar(50))"
ROWS = 1_000
SLOWLY = {"chunk_rows": 50, "max_rows_per_second": 1_000, "parallel": 1}


def signal(guest: MysqlGuest, action: str, **options: str) -> Control:
    return Control(action, "snapshot", TableId(guest.database, "t"), {"action": action, **options})


@pytest.fixture
def table(mysql_guest: MysqlGuest) -> MysqlGuest:
    rows = ", ".join(f"({at}, 'v')" for at in range(ROWS))
    mysql_guest.execute(T, f"INSERT INTO t VALUES {rows}")
    return mysql_guest


async def test_a_paused_snapshot_goes_on_where_it_was_once_it_is_resumed(table: MysqlGuest) -> None:
    told = MysqlStory()
    source = MysqlSource(table.settings(snapshot=SLOWLY), source_context())
    async with aclosing(source.changes({})) as coming:
        while len(told.letters("t")) < 100:
            told.take(await anext(coming))
        await source.control(signal(table, "pause"))
        while "control/pause" not in told.positions:
            told.take(await anext(coming))
        read = told.letters("t").count("r")
    await run_once(table, told)  # a run that ends does not wait for what is paused
    assert told.letters("t").count("r") == read < ROWS

    said = list[SourceReport]()
    source = MysqlSource(table.settings(), source_context(report=said.append))
    async with aclosing(source.changes(dict(told.positions))) as coming:
        told.take(await anext(coming))
        await source.control(signal(table, "resume"))
        while told.letters("t").count("r") < ROWS:
            told.take(await anext(coming))

    assert len(told.fold("t")) == ROWS, "each row once"
    paused = [each.finding for each in said if isinstance(each, Remark) and each.name == PAUSED]
    assert paused[0] is not None, "the status says so after a restart"
    assert paused[0].problem == f"the snapshot of {table.database}.t is paused"
    assert paused[-1] is None


async def test_a_stopped_snapshot_ends_and_one_that_is_started_reads_all_rows(
    table: MysqlGuest,
) -> None:
    told = MysqlStory()
    source = MysqlSource(table.settings(snapshot=SLOWLY), source_context())
    async with aclosing(source.changes({})) as coming:
        while len(told.letters("t")) < 100:
            told.take(await anext(coming))
        await source.control(signal(table, "stop"))
        while "control/stop" not in told.positions:
            told.take(await anext(coming))
    await run_once(table, told)
    before = told.letters("t").count("r")
    assert before < ROWS

    source = MysqlSource(table.settings(), source_context())
    async with aclosing(source.changes(dict(told.positions))) as coming:
        told.take(await anext(coming))
        await source.control(signal(table, "start"))
        while told.letters("t").count("r") < before + ROWS:
            told.take(await anext(coming))

    assert len(told.fold("t")) == ROWS


async def test_a_condition_and_a_table_that_is_not_captured_are_refused(table: MysqlGuest) -> None:
    source = MysqlSource(table.settings(), source_context())
    other = Control("other", "snapshot", TableId(table.database, "u"), {"action": "start"})
    async with aclosing(source.changes({})) as coming:
        await anext(coming)
        with pytest.raises(SourceRejected, match="condition"):
            await source.control(signal(table, "start", where="id > 3"))
        with pytest.raises(SourceRejected, match="does not capture"):
            await source.control(other)
