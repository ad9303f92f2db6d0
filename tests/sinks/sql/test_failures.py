"""A database that goes away in the middle is waited for, and nothing it says gives a row away."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.foundation.errors import (
    RebuildNeeded,
    RecordsRejected,
    SinkRejected,
    SinkUnavailable,
)
from headwater.core_log.model.changes import TableChanges
from headwater.sinks.sink import SinkContext, Slice
from headwater.sinks.sql.contents import close_contents, open_contents
from headwater.sinks.sql.dialects import mysql
from headwater.sinks.sql.dialects.postgresql import PostgresqlDialect
from headwater.sinks.sql.failures import SchemaChangeFirst
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.sink import SqlSink
from headwater.sinks.sql.target import SqlTarget
from tests.budget import PATIENCE_S
from tests.contract.sink_suite import ORDERS, by_id
from tests.fakes import SimulatedClock
from tests.silent_link import options_of
from tests.sinks.sql.databases import POISONS, SqlBench
from tests.slices import ScriptedTopic, schema_of

ENDINGS = {
    "postgresql": "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()",
}


def target_of(bench: SqlBench, clock: SimulatedClock) -> SqlTarget:
    context = SinkContext("shop", bench.directory, {}, clock, "sql")
    return SqlTarget(SqlSettings(url=SecretStr(bench.url)), context)


def session_of(target: SqlTarget) -> int:
    return int(target.connect().exec_driver_sql("SELECT CONNECTION_ID()").scalar() or 0)


def test_a_mysql_server_ends_a_session_that_writes_and_says_nothing_for_two_minutes(
    bench: SqlBench,
) -> None:
    if bench.kind != "mariadb":
        pytest.skip("PostgreSQL's session notices a silent network; SQLite has none")
    target = target_of(bench, SimulatedClock())
    ask = "SELECT @@SESSION.wait_timeout"

    target.committed_offsets([])
    before = target.connect().exec_driver_sql(ask).scalar()
    target.connect().rollback()
    target.begin({})
    within = target.connect().exec_driver_sql(ask).scalar()
    target.rollback()
    target.close()

    assert before != 120 and within == 120


def test_a_connection_is_made_anew_before_the_server_ends_it(bench: SqlBench) -> None:
    if bench.kind != "mariadb":
        pytest.skip("their sessions may be idle for ever")
    clock = SimulatedClock()
    target = target_of(bench, clock)

    sessions = []
    for idle_ms in (0, 50_000, 61_000):
        clock.advance(idle_ms)
        target.begin({})
        sessions.append(session_of(target))
        target.commit({})
    target.close()

    assert sessions[0] == sessions[1] != sessions[2]


def test_a_reader_of_a_table_may_pause_for_longer_than_a_writer(bench: SqlBench) -> None:
    if bench.kind != "mariadb":
        pytest.skip("their sessions may be idle for ever")
    target = target_of(bench, SimulatedClock())
    ask = "SELECT @@SESSION.wait_timeout"
    target.begin({})
    target.rollback()
    limited = target.connect().exec_driver_sql(ask).scalar()
    target.connect().rollback()

    opened = open_contents(target, ORDERS, [])
    found = target.connect().exec_driver_sql(ask).scalar()
    close_contents(target, opened)
    target.close()

    assert limited == 120 != found


async def test_a_session_that_the_server_has_ended_is_missed_by_nobody(bench: SqlBench) -> None:
    if bench.kind != "mariadb":
        pytest.skip("their sessions may be idle for ever")
    topic, clock = ScriptedTopic(), SimulatedClock()
    context = SinkContext("shop", bench.directory, {}, clock, "sql")
    sink = SqlSink(SqlSettings(url=SecretStr(bench.url)), context)
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await sink.apply(topic.slice())

    _end_other_connections(bench)
    clock.advance(61_000)
    stood = await sink.committed_offsets([topic.name])
    _end_other_connections(bench)
    clock.advance(61_000)
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    await sink.apply(topic.slice())
    await sink.close()

    assert stood is not None and len(stood) == 1
    assert len(await bench.rows("public.orders")) == 2


def test_a_lock_of_a_session_that_is_cut_off_goes_with_it(
    bench: SqlBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.kind != "mariadb":
        pytest.skip("PostgreSQL's session notices a silent network; SQLite has none")
    bench.execute("CREATE TABLE locked (id INT PRIMARY KEY)", "INSERT INTO locked VALUES (1)")
    monkeypatch.setattr(mysql, "IDLE_S_MAX", 1)
    cut_off = target_of(bench, SimulatedClock())
    cut_off.begin({})
    cut_off.connect().exec_driver_sql("SELECT id FROM locked FOR UPDATE").all()

    with bench.engine.begin() as connection:
        found = connection.exec_driver_sql("SELECT id FROM locked FOR UPDATE").all()
    cut_off.rollback()
    cut_off.close()

    assert [row[0] for row in found] == [1]


async def test_a_connection_that_breaks_in_the_middle_leaves_nothing_and_is_made_anew(
    bench: SqlBench,
) -> None:
    if bench.kind == "sqlite":
        pytest.skip("there is no connection to break")
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink(chunk_rows=1)
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    topic.append(ORDERS, ("c", {"id": 3, "note": "c"}))
    part = topic.slice()

    with pytest.raises(SinkUnavailable):
        await sink.apply(_interrupted(bench, part))
    left = await bench.rows("public.orders")
    stood = await sink.committed_offsets([topic.name])
    await sink.apply(part)
    await sink.close()

    assert [row["id"] for row in left] == [1]
    assert stood == part.start
    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [1, 2, 3]


def _interrupted(bench: SqlBench, part: Slice) -> Slice:
    async def read(_: Slice) -> AsyncIterator[TableChanges]:
        async for changes in part.changes():
            yield changes
            _end_other_connections(bench)

    return replace(part, read=read)


def _end_other_connections(bench: SqlBench) -> None:
    if bench.kind in ENDINGS:
        bench.execute(ENDINGS[bench.kind])
        return
    with bench.engine.connect() as connection:
        own = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar()
        others = connection.exec_driver_sql(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE()"
        ).scalars()
        for number in [each for each in others if each != own]:
            connection.exec_driver_sql(f"KILL {number}")


async def test_a_sink_that_waits_for_a_lock_ends_when_it_is_told_to(bench: SqlBench) -> None:
    if bench.kind == "sqlite":
        pytest.skip("its locks are waited for by time, and never longer than connect_timeout")
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("u", {"id": 1, "note": "b"}))
    part = topic.slice()

    with bench.engine.begin() as other:
        other.exec_driver_sql("UPDATE orders SET note = 'mine' WHERE id = 1")
        applying = asyncio.create_task(sink.apply(part))
        await asyncio.to_thread(_wait_until_blocked, bench)
        applying.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([applying])
            await sink.close()
        other.rollback()

    assert applying.cancelled()
    again = bench.sink()
    await again.committed_offsets([topic.name])
    await again.apply(part)
    await again.close()
    assert [row["note"] for row in await bench.rows("public.orders")] == ["b"]


def _wait_until_blocked(bench: SqlBench) -> None:
    question = {
        "postgresql": "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "mariadb": "SELECT count(*) FROM information_schema.innodb_lock_waits",
    }[bench.kind]
    with bench.engine.connect() as connection:
        while not connection.exec_driver_sql(question).scalar():
            time.sleep(0.2)  # MariaDB answers from a cache as long as it is asked every 0.1 s


async def test_a_full_disk_of_the_database_is_waited_for(bench: SqlBench) -> None:
    if bench.kind not in ("mysql", "mariadb"):
        pytest.skip("its triggers cannot raise the error of a full disk")
    topic = ScriptedTopic()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    topic.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    part = topic.slice()
    bench.execute(
        "CREATE TRIGGER full_disk BEFORE INSERT ON orders FOR EACH ROW"
        " SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 20, MESSAGE_TEXT = 'Disk is full'"
    )
    with pytest.raises(SinkUnavailable, match="away, busy or full \\(error 20\\)"):
        await sink.apply(part)
    bench.execute("DROP TRIGGER full_disk")
    await sink.apply(part)
    await sink.close()

    assert [row["id"] for row in by_id(await bench.rows("public.orders"))] == [1, 2]


async def test_errors_of_records_never_hold_their_values(bench: SqlBench) -> None:
    schema, value = POISONS[bench.kind]
    topic = ScriptedTopic()
    topic.append(schema, ("c", {"id": 7_654_321, "x": value}))
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    with pytest.raises(RecordsRejected) as caught:
        await sink.apply(topic.slice())
    await sink.close()

    said = f"{caught.value}{caught.value.reasons}{caught.value.__cause__}"
    assert "7654321" not in said and "7_654_321" not in said
    assert caught.value.reasons[0]


async def test_an_unreachable_database_is_unavailable_and_its_password_stays_secret(
    tmp_path: Path,
) -> None:
    urls = ("postgresql", "mysql")
    for kind in urls:
        bench = SqlBench(kind, f"{kind}://u:canary%40secret@127.0.0.1:1/nothing", tmp_path)
        sink = bench.sink()

        with pytest.raises(SinkUnavailable) as caught:
            await sink.committed_offsets(["a"])
        findings = await sink.examine()
        await sink.close()

        said = f"{caught.value!r}{caught.value}{findings}{sink._settings}"
        assert "canary" not in said
        assert findings[0].is_fatal


async def test_only_the_records_that_do_not_fit_are_named_among_many(bench: SqlBench) -> None:
    schema, value = POISONS[bench.kind]
    topic = ScriptedTopic()
    bad = {17, 256, 999}
    topic.append(
        schema, *(("c", {"id": n, "x": value if n in bad else None}) for n in range(1_000))
    )
    sink = bench.sink()
    await sink.committed_offsets([topic.name])

    with pytest.raises(RecordsRejected) as caught:
        await sink.apply(topic.slice())
    await sink.close()

    assert caught.value.reasons.keys() == bad


MISFITS = {
    "postgresql": ("VARCHAR(3)", pa.string(), "canary", "string", "a text"),
    "mariadb": ("DECIMAL(5,2)", pa.string(), "canary", "string", "a text"),
}


async def test_a_database_that_names_a_column_has_it_told_with_type_and_class(
    bench: SqlBench,
) -> None:
    if bench.kind not in MISFITS:
        pytest.skip("it names none")
    declared, kind, value, type_, class_ = MISFITS[bench.kind]
    topic = ScriptedTopic()
    topic.append(
        schema_of("public.orders", id=pa.int64(), price=kind), ("c", {"id": 1, "price": value})
    )
    sink = bench.sink(tables={"*": {"types": {"price": declared}}})
    await sink.committed_offsets([topic.name])

    with pytest.raises(RecordsRejected) as caught:
        await sink.apply(topic.slice())
    await sink.close()

    told = caught.value.reasons[0]
    assert told.endswith(f": column 'price' comes as {type_} and the value is {class_}")
    assert value not in told


IN_THE_WAY = {
    "postgresql": ["CREATE VIEW totals AS SELECT total FROM orders"],
    "mariadb": [
        "ALTER TABLE orders ADD UNIQUE (total)",
        "CREATE TABLE totals (total INT, FOREIGN KEY (total) REFERENCES orders (total))",
    ],
}


async def test_a_change_of_columns_that_is_refused_names_its_table(bench: SqlBench) -> None:
    if bench.kind not in IN_THE_WAY:
        pytest.skip("its columns have no types that would have to change")
    topic, sink = ScriptedTopic(), bench.sink()
    topic.append(schema_of("public.orders", id=pa.int64(), total=pa.int32()),
                 ("c", {"id": 1, "total": 1}))  # fmt: skip
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    bench.execute(*IN_THE_WAY[bench.kind])
    topic.append(schema_of("public.orders", id=pa.int64(), total=pa.int64()),
                 ("c", {"id": 2, "total": 1 << 40}))  # fmt: skip

    with pytest.raises(SinkRejected) as refused:
        await sink.apply(topic.slice())
    await sink.close()

    assert refused.value.facts["table"] == "public.orders"


async def test_a_column_that_the_database_does_not_drop_stays_and_the_rows_are_there(
    bench: SqlBench,
) -> None:
    if bench.kind != "mariadb":
        pytest.skip("columns are dropped in the transaction of the rows")
    topic, sink = ScriptedTopic(), bench.sink()
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    await sink.committed_offsets([topic.name])
    await sink.apply(topic.slice())
    bench.execute("ALTER TABLE orders ADD CONSTRAINT c CHECK (note <> 'x' OR id < 0)")
    topic.append(schema_of("public.orders", id=pa.int64()), ("c", {"id": 2}))

    await sink.apply(topic.slice())
    await sink.close()

    assert by_id(await bench.rows("public.orders")) == [
        {"id": 1, "note": "a"},
        {"id": 2, "note": None},
    ]


async def test_a_table_that_no_slice_was_applied_to_gets_the_form_of_the_next(
    bench: SqlBench,
) -> None:
    """A database without transactional DDL keeps the table of a slice that failed."""
    number = schema_of("public.orders", id=pa.int64(), note=pa.int32())
    both, newer, sink = ScriptedTopic(), ScriptedTopic(), bench.sink()
    both.append(number, ("c", {"id": 1, "note": 1}))
    both.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    newer.append(ORDERS, ("c", {"id": 2, "note": "b"}))
    newer.append(ORDERS, ("c", {"id": 3, "note": "c"}))

    with pytest.raises(RebuildNeeded):
        await sink.apply(both.slice())
    await sink.apply(newer.slice())
    await sink.close()

    assert by_id(await bench.rows("public.orders")) == [
        {"id": 2, "note": "b"},
        {"id": 3, "note": "c"},
    ]


async def test_a_column_of_two_types_in_the_first_slice_needs_a_rebuild(bench: SqlBench) -> None:
    """Even if the table is empty when its column has the second type."""
    topic, sink = ScriptedTopic(), bench.sink()
    days, numbers = pa.date32(), pa.list_(pa.int64())
    former = schema_of("public.orders", id=pa.int64(), v=days)
    topic.append(former, ("c", {"id": 1, "v": None}), ("d", {"id": 1}))
    topic.append(schema_of("public.orders", id=pa.int64(), v=numbers), ("c", {"id": 2, "v": [1]}))
    await sink.committed_offsets([topic.name])

    with pytest.raises(RebuildNeeded):
        async with asyncio.timeout(PATIENCE_S):
            await sink.apply(topic.slice())
    await sink.close()


async def test_a_table_that_a_killed_run_makes_at_the_last_moment_is_taken(
    bench: SqlBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, asked = ScriptedTopic(), list[list[str]]()
    run_outside = SqlTarget.run_outside

    def run_late(target: SqlTarget, wanted: SchemaChangeFirst) -> None:
        asked.append([*wanted.statements])
        run_outside(target, wanted)  # of the killed run
        run_outside(target, wanted)

    monkeypatch.setattr(SqlTarget, "run_outside", run_late)
    topic.append(ORDERS, ("c", {"id": 1, "note": "a"}))
    sink = bench.sink()

    await sink.apply(topic.slice())
    await sink.close()

    assert [row["id"] for row in await bench.rows("public.orders")] == [1]
    assert len(asked) == (1 if bench.kind == "mariadb" else 0)


def test_a_connection_notices_a_silent_network_within_a_minute_unless_its_address_says_otherwise(
    postgres: str, tmp_path: Path
) -> None:
    def options_of(address: str) -> dict[str, str]:
        engine = engine_at(address, directory=tmp_path, timeout_ms=10_000)
        with engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            found: dict[str, str] = driver.info.get_parameters()
        return found

    given = options_of(f"{postgres}?tcp_user_timeout=5000")
    usual = options_of(postgres)

    assert (usual["keepalives_idle"], usual["tcp_user_timeout"]) == ("30", "60000")
    assert (given["keepalives_idle"], given["tcp_user_timeout"]) == ("30", "5000")


def test_a_connection_to_mysql_notices_a_silent_network_as_soon(
    mariadb: str, tmp_path: Path
) -> None:
    def found_at(address: str) -> tuple[list[int], float | None]:
        engine = engine_at(address, directory=tmp_path, timeout_ms=10_000)
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1").scalar()
            driver: Any = connection.connection.driver_connection
            return options_of(driver._sock.fileno()), driver._sock.gettimeout()

    usual, given = found_at(mariadb), found_at(f"{mariadb}&read_timeout=7&write_timeout=8")

    assert usual == ([30, 10, 3, 60_000], None)
    assert given == ([30, 10, 3, 60_000], 7)


@pytest.mark.slow
def test_a_login_to_mysql_that_gets_no_answer_ends(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"mysql://root@127.0.0.1:{mute.getsockname()[1]}/shop"
        engine = engine_at(address, directory=tmp_path, timeout_ms=1_000)

        with pytest.raises(sa.exc.OperationalError):
            engine.connect()


def test_the_server_too_notices_a_silent_network_so_that_no_lock_stays(
    postgres: str, tmp_path: Path
) -> None:
    engine = engine_at(postgres, directory=tmp_path, timeout_ms=10_000)
    with engine.connect() as connection:
        PostgresqlDialect().prepare(connection)
        found = [
            connection.exec_driver_sql(f"SHOW {name}").scalar()
            for name in ("tcp_keepalives_idle", "tcp_keepalives_count", "tcp_user_timeout")
        ]

    assert found == ["30", "3", "60000"]
