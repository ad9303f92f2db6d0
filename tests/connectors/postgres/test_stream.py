"""What the stream brings becomes Debezium's events: keys, rows before, truncates, notices."""

import asyncio
from typing import Any

import orjson
import pyarrow as pa
import pytest

from headwater.connectors.postgres.server.lsn import parse_lsn
from headwater.connectors.postgres.snapshot.progress import TableSnapshotProgress, part_of
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.source_session import Story, short, story
from tests.databases import Guest


@pytest.fixture
def lines(guest: Guest) -> Guest:
    guest.execute("CREATE TABLE lines (a int, b text, n int, PRIMARY KEY (b, a))")
    guest.publish()
    return guest


def said(told: Story, kind: str) -> list[dict[str, Any]]:
    return [
        orjson.loads(value)
        for notices in told.notices
        if notices.kind == kind
        for value in notices.values.to_pylist()
    ]


async def test_changes_come_in_the_order_of_their_commits(lines: Guest) -> None:
    async with story(lines) as told:
        events = await told.tell(
            "INSERT INTO lines VALUES (1, 'x', 1), (2, 'x', NULL)",
            "BEGIN; UPDATE lines SET n = 5 WHERE a = 1; SAVEPOINT s; DELETE FROM lines;"
            " ROLLBACK TO s; DELETE FROM lines WHERE a = 2; COMMIT",
            "BEGIN; DELETE FROM lines; ROLLBACK",
        )

    assert short(events) == [
        ("c", {"a": 1, "b": "x", "n": 1}),
        ("c", {"a": 2, "b": "x", "n": None}),
        ("u", {"a": 1, "b": "x", "n": 5}),
        ("d", {"a": 2, "b": "x", "n": None}),
    ]
    assert [event.index for event in events] == [0, 1, 0, 1]
    assert [event.commit for event in events[::2]] == sorted({event.commit for event in events})
    assert told.tables[-1].schema.key == ("b", "a")


async def test_a_prepared_transaction_comes_when_it_is_committed(lines: Guest) -> None:
    name = lines.value("SELECT 'of ' || current_database()")  # one for all of the server
    prepare = f"PREPARE TRANSACTION '{name}'"
    async with story(lines) as told:
        before = await told.tell(
            f"BEGIN; INSERT INTO lines VALUES (1, 'x', 1); {prepare}",
            "INSERT INTO lines VALUES (2, 'x', 2)",
        )
        then = await told.tell(
            f"COMMIT PREPARED '{name}'",
            f"BEGIN; INSERT INTO lines VALUES (3, 'x', 3); {prepare}",
            f"ROLLBACK PREPARED '{name}'",
        )

    assert [event.row["a"] for event in before] == [2]
    assert [event.row["a"] for event in then] == [1]
    assert then[0].commit > before[0].commit, "its place is that of the commit"


async def test_a_changed_key_is_a_delete_and_an_insert_side_by_side(lines: Guest) -> None:
    async with story(lines) as told:
        await told.tell("INSERT INTO lines SELECT i, 'x', i FROM generate_series(1, 3) i")

        events = await told.tell("UPDATE lines SET a = a + (n % 2) * 10")

    assert [
        (*shown, event.is_move) for shown, event in zip(short(events), events, strict=True)
    ] == [
        ("d", {"a": 1, "b": "x", "n": None}, True),
        ("c", {"a": 11, "b": "x", "n": 1}, True),
        ("u", {"a": 2, "b": "x", "n": 2}, False),
        ("d", {"a": 3, "b": "x", "n": None}, True),
        ("c", {"a": 13, "b": "x", "n": 3}, True),
    ]
    assert [event.index for event in events] == [0, 0, 1, 2, 2]


async def test_the_whole_row_before_comes_where_the_server_sends_it(lines: Guest) -> None:
    lines.execute("ALTER TABLE lines REPLICA IDENTITY FULL")
    async with story(lines) as told:
        await told.tell("INSERT INTO lines VALUES (1, 'x', 1)")

        events = await told.tell(
            "UPDATE lines SET n = NULL", "UPDATE lines SET b = 'y'", "DELETE FROM lines"
        )

    assert [(event.operation, event.row, event.before) for event in events] == [
        ("u", {"a": 1, "b": "x", "n": None}, {"a": 1, "b": "x", "n": 1}),
        ("d", {"a": 1, "b": "x", "n": None}, None),
        ("c", {"a": 1, "b": "y", "n": None}, None),
        ("d", {"a": 1, "b": "y", "n": None}, None),
    ]


async def test_a_truncate_stands_alone_for_each_of_its_tables(lines: Guest) -> None:
    lines.execute("CREATE TABLE others (id int PRIMARY KEY)")
    async with story(lines) as told:
        events = await told.tell(
            "INSERT INTO others VALUES (1)",
            "BEGIN; INSERT INTO others VALUES (2); TRUNCATE lines, others;"
            " INSERT INTO others VALUES (3); COMMIT",
        )

    assert [(event.table, event.operation, event.index) for event in events] == [
        ("others", "c", 0), ("others", "c", 0), ("lines", "t", 1), ("others", "t", 1),
        ("others", "c", 2),
    ]  # fmt: skip
    assert sum(changes.is_truncate for changes in told.tables) == 2


async def test_a_table_without_a_key_tells_its_changes_without_one(guest: Guest) -> None:
    guest.execute("CREATE TABLE notes (t text)", "ALTER TABLE notes REPLICA IDENTITY FULL")
    guest.publish("notes")
    async with story(guest) as told:
        events = await told.tell(
            "INSERT INTO notes VALUES ('a')", "UPDATE notes SET t = 'b'", "DELETE FROM notes"
        )

    assert [(event.operation, event.row["t"]) for event in events] == [
        ("c", "a"), ("u", "b"), ("d", "b"),
    ]  # fmt: skip
    assert told.tables[-1].schema.key == ()


async def test_a_delete_that_does_not_say_which_row_went_ends_its_table_alone(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE users (id int PRIMARY KEY, mail text NOT NULL UNIQUE)",
        "CREATE TABLE orders (id int PRIMARY KEY)",
    )
    guest.publish()
    async with story(guest) as told:
        await told.tell(
            "INSERT INTO users VALUES (1, 'a@b'), (2, 'c@d')",
            "ALTER TABLE users REPLICA IDENTITY USING INDEX users_mail_key",
        )
        events = await told.tell(
            "DELETE FROM users WHERE id = 1",
            "INSERT INTO orders VALUES (1)",
            "INSERT INTO users VALUES (3, 'e@f')",
        )

    assert [(each.table, each.operation) for each in events] == [("orders", "c")]
    assert TableSnapshotProgress.parse(told.positions[part_of(TableId("public", "users"))]).has_left


async def test_the_source_block_has_debeziums_fields_in_its_order(lines: Guest) -> None:
    async with story(lines) as told:
        await told.tell("INSERT INTO lines VALUES (1, 'x', 1), (2, 'x', 1)")
        await told.tell("INSERT INTO lines VALUES (3, 'x', 1)")
        first, second = (each for each in told.tables if Operation.READ not in each.operations)

    assert list(first.source) == [
        "version", "connector", "name", "ts_ms", "snapshot", "db", "sequence", "ts_us", "ts_ns",
        "schema", "table", "txId", "lsn", "xmin", "origin", "origin_lsn",
    ]  # fmt: skip
    assert first.source["connector"] == "postgresql" and first.source["snapshot"] == "false"
    assert (first.source["schema"], first.source["table"]) == ("public", "lines")
    before, lsn = orjson.loads(str(second.source["sequence"]))
    assert int(before) <= int(lsn) == second.source["lsn"]


async def test_logical_messages_become_notices(lines: Guest) -> None:
    async with story(lines) as told:
        await told.tell(
            "BEGIN; SELECT pg_logical_emit_message(true, 'mine', 'in'); COMMIT",
            "SELECT pg_logical_emit_message(false, 'mine', 'beside')",
        )

    found = [each for each in said(told, "message") if each["message"]["prefix"] == "mine"]
    assert [each["message"]["content"] for each in found] == ["aW4=", "YmVzaWRl"]
    assert [each["op"] for each in found] == ["m", "m"]
    assert found[1]["source"]["txId"] is None


async def test_messages_are_left_out_where_nobody_wants_them(lines: Guest) -> None:
    async with story(lines, messages=False, heartbeat="100ms") as told:
        await told.tell("INSERT INTO lines VALUES (1, 'x', 1)")

    assert not said(told, "message")


async def test_transactions_tell_their_ends_and_events_their_places(lines: Guest) -> None:
    lines.execute("CREATE TABLE others (id int PRIMARY KEY)")
    async with story(lines, transactions=True, messages=False, heartbeat="100ms") as told:
        await told.tell(
            "BEGIN; INSERT INTO lines VALUES (1, 'x', 1); INSERT INTO others VALUES (1);"
            " UPDATE lines SET a = 2; INSERT INTO others VALUES (2); COMMIT",
        )

    begin, end = said(told, "transaction")
    assert (begin["status"], end["status"]) == ("BEGIN", "END")
    assert begin["event_count"] is None and end["event_count"] == 5
    assert {each["data_collection"]: each["event_count"] for each in end["data_collections"]} == {
        "public.lines": 3, "public.others": 2,
    }  # fmt: skip
    orders = {
        changes.schema.table.name: [
            cell.to_pylist()
            for cell in changes.transaction.values()
            if isinstance(cell, pa.Int64Array)
        ]
        for changes in told.tables
        if changes.transaction is not None
    }
    assert orders == {"lines": [[1, 3, 4], [1, 2, 3]], "others": [[2, 5], [1, 2]]}


async def test_a_transaction_begins_where_the_server_says_though_its_first_change_is_not_ours(
    lines: Guest,
) -> None:
    lines.execute(
        "CREATE TABLE others (id int PRIMARY KEY, note text)",
        "ALTER TABLE others ALTER note SET STORAGE EXTERNAL",
        "SELECT pg_create_logical_replication_slot('beside', 'pgoutput')",
    )
    large = "INSERT INTO others VALUES (1, repeat('a', 9000))"
    ours = "INSERT INTO lines VALUES (1, 'x', 1)"
    chosen: dict[str, Any] = {"tables": ["public.lines"], "transactions": True, "messages": False}
    async with story(lines, heartbeat="100ms", **chosen) as told:
        await told.tell(f"BEGIN; {large}; {ours}; COMMIT")

    [begin] = [each for each in said(told, "transaction") if each["status"] == "BEGIN"]
    peeked = lines.rows(
        "SELECT xid::text, (lsn - '0/0')::text FROM pg_logical_slot_peek_binary_changes('beside',"
        " NULL, NULL, 'proto_version', '1', 'publication_names', 'headwater_shop')"
        " WHERE get_byte(data, 0) = ascii('B')"
    )
    assert begin["id"] in {f"{xid}:{lsn}" for xid, lsn in peeked}
    [inserted] = [each for each in told.tables if each.schema.table.name == "lines"]
    assert inserted.transaction is not None
    ids = inserted.transaction["id"]
    assert isinstance(ids, pa.StringArray) and begin["id"] not in ids.to_pylist()


async def test_messages_count_among_the_events_of_their_transaction(lines: Guest) -> None:
    emit = "SELECT pg_logical_emit_message({}, 'mine', 'said')"
    inside, beside = emit.format("true"), emit.format("false")
    async with story(lines, transactions=True) as told:
        await told.tell(
            f"BEGIN; {inside}; INSERT INTO lines VALUES (1, 'x', 1); {inside}; COMMIT",
            f"BEGIN; {inside}; COMMIT",
            beside,
        )

    ends = [each for each in said(told, "transaction") if each["status"] == "END"]
    ends = ends[-3:-1]  # the last is that of the story's own mark
    assert [each["event_count"] for each in ends] == [3, 1]
    message = {"data_collection": "LOGICAL_DECODING_MESSAGE", "event_count": 1}
    table = {"data_collection": "public.lines", "event_count": 1}
    assert [each["data_collections"] for each in ends] == [[table, message, message], [message]]
    mine = [each for each in said(told, "message") if each["message"]["prefix"] == "mine"]
    places = [each["transaction"] for each in mine]
    orders = [each and (each["total_order"], each["data_collection_order"]) for each in places]
    assert orders == [(1, 1), (3, 1), (1, 1), None]
    [row] = [each.transaction for each in told.tables if each.transaction is not None]
    assert [row["total_order"].to_pylist(), row["data_collection_order"].to_pylist()] == [[2], [1]]  # type: ignore[union-attr]


async def test_a_transaction_has_the_time_of_its_commit(lines: Guest) -> None:
    async with story(lines, transactions=True, messages=False, heartbeat="100ms") as told:
        await told.tell("INSERT INTO lines VALUES (1, 'x', 1)")

    [changes] = [each for each in told.tables if each.transaction is not None]
    times = [each["ts_ms"] for each in said(told, "transaction")]
    assert times == [changes.source["ts_ms"]] * 2


async def test_a_message_outside_of_transactions_is_of_the_last_and_ends_something(
    lines: Guest,
) -> None:
    beside = "SELECT pg_logical_emit_message(false, 'mine', 'said')"
    rows = [f"INSERT INTO lines VALUES ({number}, 'x', 1)" for number in (1, 2, 3)]
    async with story(lines) as told:
        lines.execute("SELECT pg_logical_emit_message(true, 'begun', '')")
        await told.tell(rows[0], beside, rows[1], beside, beside, rows[2])

    inserts = [
        (time, sequence, lsn)
        for each in told.tables
        for time, sequence, lsn in zip(
            cells(each, "ts_us"), cells(each, "sequence"), cells(each, "lsn"), strict=True
        )
    ]
    mine = [each["source"] for each in said(told, "message") if each["message"]["prefix"] == "mine"]
    assert [each["ts_us"] for each in mine] == [inserts[0][0], inserts[1][0], inserts[1][0]]
    assert [each["sequence"] for each in mine] == [
        f'["{each["lsn"]}","{each["lsn"]}"]' for each in mine
    ]
    assert [sequence for _, sequence, _ in inserts[1:]] == [
        f'["{mine[0]["lsn"]}","{inserts[1][2]}"]',
        f'["{mine[2]["lsn"]}","{inserts[2][2]}"]',
    ]


def cells(changes: TableChanges, name: str) -> list[Any]:
    cell = changes.source[name]
    return cell.to_pylist() if isinstance(cell, pa.Array) else [cell] * len(changes)


async def test_rows_that_are_set_aside_count_among_the_events(lines: Guest) -> None:
    lines.execute("CREATE TABLE moments (id int PRIMARY KEY, at timestamp)")
    async with story(lines, transactions=True, messages=False, heartbeat="100ms") as told:
        await told.tell(
            "BEGIN; INSERT INTO moments VALUES (1, '2020-01-01'), (2, '294276-12-31'),"
            " (3, '2020-01-01'); COMMIT"
        )

    [changes] = [each for each in told.tables if each.transaction is not None]
    [end] = [each for each in said(told, "transaction") if each["status"] == "END"]
    assert len(changes) == 2 and end["event_count"] == 3
    assert changes.transaction["total_order"].to_pylist() == [1, 3]  # type: ignore[index, union-attr]


async def test_an_idle_stream_moves_its_position_with_a_heartbeat(lines: Guest) -> None:
    lines.execute("CREATE TABLE private (id int)")
    async with story(lines, tables=["public.lines"], heartbeat="50ms") as told:
        before = dict(told.positions)

        # the first one may have been written before anything else was
        while not said(told, "heartbeat") or told.positions["stream"] == before["stream"]:
            lines.execute("INSERT INTO private VALUES (1)")
            batch = await asyncio.wait_for(told.batches.get(), 30)
            assert not isinstance(batch, Exception) and not batch.tables
            told.notices += batch.notices
            told.positions |= batch.positions

    assert set(said(told, "heartbeat")[0]) == {"ts_ms"}


async def test_acknowledged_positions_are_confirmed_to_the_slot(lines: Guest) -> None:
    async with story(lines) as told:
        await told.tell("INSERT INTO lines VALUES (1, 'x', 1)")
        confirmed = (
            "SELECT confirmed_flush_lsn::text FROM pg_replication_slots"
            " WHERE slot_name = 'headwater_shop'"
        )
        assert parse_lsn(lines.value(confirmed)) < parse_lsn(told.positions["stream"])

        await told.source.acknowledge(told.positions)

        while await asyncio.to_thread(lines.value, confirmed) != told.positions["stream"]:
            pass
