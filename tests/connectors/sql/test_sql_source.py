"""What a table's newest rows are is found by its cursor, or by comparing with the time before."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.connectors.source import Control
from headwater.core_log.foundation.errors import SourceRejected, SourceUnavailable
from headwater.core_log.model.table_schema import TableId
from tests.connectors.sql.shop import Rounds, Shop, changes_in, one_round
from tests.databases import sql_mode

ORDERS = "CREATE TABLE orders (id INTEGER PRIMARY KEY, note VARCHAR(20), changed TIMESTAMP)"
ORDERS_IN = {"mariadb": ORDERS.replace("TIMESTAMP", "DATETIME(6) NOT NULL")}
CURSOR = {"orders": ["changed"]}


def create_orders(shop: Shop) -> None:
    shop.execute(ORDERS_IN.get(shop.kind, ORDERS))


def insert(number: int, changed: str, note: str = "a") -> str:
    return f"INSERT INTO orders VALUES ({number}, '{note}', '2026-01-01 {changed}')"


def ids(changes: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, int]]:
    return [(letter, row["id"]) for letter, row in changes]


async def test_rows_beyond_the_cursor_come_once_and_ties_are_told_apart(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(*(insert(number, "10:00:00") for number in range(1, 6)))
    told, stands = await one_round(shop.source(cursor=CURSOR, batch_rows=2))
    shop.execute(insert(6, "10:00:00"), insert(7, "10:00:01.5"))

    more, stands = await one_round(shop.source(cursor=CURSOR, batch_rows=2), stands)
    nothing, _ = await one_round(shop.source(cursor=CURSOR, batch_rows=2), stands)

    assert ids(told) == [("r", number) for number in range(1, 6)]
    assert ids(more) == [("u", 6), ("u", 7)]
    assert not nothing


@pytest.mark.parametrize("kind", ["VARCHAR(20)", "DOUBLE PRECISION"])
@pytest.mark.parametrize("lag", [{"lag_ms": 30_000}, {"lag_count": 5}])
async def test_a_lag_that_a_cursor_cannot_have_is_refused(
    shop: Shop, kind: str, lag: dict[str, int]
) -> None:
    shop.execute(f"CREATE TABLE log (id INTEGER PRIMARY KEY, at_ {kind} NOT NULL)")
    chosen: dict[str, Any] = {"cursor": {"log": ["at_"]}, **lag}

    (finding,) = await shop.source(**chosen).examine()

    assert finding.is_fatal and "can have no effect" in finding.problem
    assert "column='at_'" in finding.problem
    with pytest.raises(SourceRejected, match="can have no effect"):
        await one_round(shop.source(**chosen))
    assert not await shop.source(cursor=chosen["cursor"]).examine()


async def test_a_lag_for_cursors_of_another_kind_is_a_remark(shop: Shop) -> None:
    shop.execute("CREATE TABLE log (id INTEGER PRIMARY KEY)")
    cursor = {"log": ["id"]}

    (finding,) = await shop.source(cursor=cursor, lag_ms=30_000).examine()

    assert not finding.is_fatal and "whose cursor is id" in finding.problem
    assert "lag_count" in finding.hint
    assert not await shop.source(cursor=cursor, lag_ms=30_000, lag_count=1).examine()


async def test_a_row_that_commits_late_comes_within_the_lag_and_the_others_do_not_again(
    shop: Shop,
) -> None:
    create_orders(shop)
    shop.execute(insert(1, "10:00:00"), insert(2, "10:01:00"))
    rounds = Rounds(shop.source(until_end=False, cursor=CURSOR, lag_ms=30_000))
    first = await rounds.until(2)

    shop.execute(insert(4, "10:00:45"), insert(3, "10:00:15"))  # the last is older than the lag
    late = await rounds.until(1)
    shop.execute("UPDATE orders SET note = 'b' WHERE id = 4", insert(5, "10:01:01"))
    later = await rounds.until(2)
    await rounds.close()

    assert ids(first) == [("r", 1), ("r", 2)]
    assert ids(late) == [("u", 4)]
    assert ids(later) == [("u", 4), ("u", 5)]


async def test_a_cursor_of_numbers_has_a_lag_of_its_own(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE log (id INTEGER PRIMARY KEY, what VARCHAR(10))",
        "INSERT INTO log VALUES (1, 'a'), (2, 'b'), (5, 'e')",
    )
    cursor = {"log": ["id"]}
    rounds = Rounds(shop.source(until_end=False, cursor=cursor, lag_count=3))
    first = await rounds.until(3)

    shop.execute("INSERT INTO log VALUES (4, 'd'), (6, 'f')")
    more = await rounds.until(2)
    await rounds.close()

    assert ids(first) == [("r", 1), ("r", 2), ("r", 5)]
    assert ids(more) == [("u", 4), ("u", 6)]


async def test_a_table_without_a_cursor_is_compared_with_the_time_before(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(*(insert(number, "10:00:00") for number in (1, 2, 3)))
    rounds = Rounds(shop.source(until_end=False, deletes="compare", batch_rows=2))
    first = await rounds.until(4)

    shop.execute(
        "UPDATE orders SET note = 'b' WHERE id = 2", "DELETE FROM orders WHERE id = 1",
        insert(4, "10:00:00"),
    )  # fmt: skip
    more = await rounds.until(3)
    await rounds.close()

    assert [letter for letter, _ in first] == ["t", "r", "r", "r"]
    assert ids(more) == [("u", 2), ("c", 4), ("d", 1)]


async def test_deletes_are_found_beside_a_cursor_and_after_a_restart(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(*(insert(number, "10:00:00") for number in (1, 2, 3)))
    settings: dict[str, Any] = {"cursor": CURSOR, "deletes": "compare", "compare_every_ms": 0}
    rounds = Rounds(shop.source(until_end=False, **settings))
    await rounds.until(4)
    shop.execute("DELETE FROM orders WHERE id = 1", insert(4, "10:00:01"))
    more = await rounds.until(2)
    await rounds.close()
    shop.execute("DELETE FROM orders WHERE id = 4")

    again, _ = await one_round(shop.source(**settings), {})

    assert ids(more) == [("c", 4), ("d", 1)]
    assert ids(again) == [("t", None), ("r", 2), ("r", 3)]


async def test_a_table_that_is_read_whole_becomes_readable_as_a_whole(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(*(insert(number, "10:00:00") for number in range(5)))

    batches = [batch async for batch in shop.source(deletes="compare", batch_rows=2).changes({})]

    assert [bool(batch.positions) for batch in batches] == [False] * 4 + [True]


async def test_a_snapshot_can_be_asked_for(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(insert(1, "10:00:00"))
    _, stands = await one_round(shop.source(cursor=CURSOR))
    source = shop.source(cursor=CURSOR)
    await source.control(Control("17", "snapshot", TableId(shop.prefix.strip("."), "orders")))

    told, after = await one_round(source, stands)

    assert ids(told) == [("r", 1)]
    assert after["control/17"] == "snapshot"


THINGS = (
    "CREATE TABLE things (id INTEGER PRIMARY KEY, small SMALLINT, big BIGINT, yes BOOLEAN, "
    "price DECIMAL(10,2), huge DECIMAL(30,4), real_ DOUBLE PRECISION, text_ TEXT, raw {raw}, "
    "day DATE, at {at}, clock {clock}, since {since})"
)
KINDS_OF = {
    "sqlite": {"raw": "BLOB", "at": "TIMESTAMP", "clock": "TIME", "since": "TIMESTAMP"},
    "postgresql": {"raw": "BYTEA", "at": "TIMESTAMP", "clock": "TIME", "since": "TIMESTAMPTZ"},
    "mariadb": {"raw": "BLOB", "at": "DATETIME(6)", "clock": "TIME(6)", "since": "DATETIME(6)"},
}
HUGE = "12345678901234567890123456.1234"


async def test_values_keep_their_types(shop: Shop) -> None:
    raw = "'\\x00ff0a'" if shop.kind == "postgresql" else "X'00ff0a'"
    huge = "NULL" if shop.kind == "sqlite" else HUGE  # which would make a double of it
    shop.execute(
        THINGS.format(**KINDS_OF[shop.kind]),
        f"INSERT INTO things VALUES (1, -7, 9223372036854775807, TRUE, 12.30, {huge}, 0.1, "
        f"'a,\"b\"\n100% ü', {raw}, '2026-02-28', '2026-02-28 23:59:59.123456', "
        f"'23:59:59.500000', '2026-02-28 12:00:00{'+00' if shop.kind == 'postgresql' else ''}')",
        "INSERT INTO things (id, text_) VALUES (2, '')",
    )

    told, _ = await one_round(shop.source())

    (_, first), (_, second) = told
    assert first.pop("since").replace(tzinfo=UTC) == datetime(2026, 2, 28, 12, tzinfo=UTC)
    assert second.pop("since") is None
    assert first == {
        "id": 1,
        "small": -7,
        "big": 9_223_372_036_854_775_807,
        "yes": True,
        "price": Decimal("12.30"),
        "huge": None if shop.kind == "sqlite" else Decimal(HUGE),
        "real_": 0.1,
        "text_": 'a,"b"\n100% ü',
        "raw": b"\x00\xff\n",
        "day": date(2026, 2, 28),
        "at": datetime(2026, 2, 28, 23, 59, 59, 123_456),
        "clock": time(23, 59, 59, 500_000),
    }
    assert second == dict.fromkeys(first) | {"id": 2, "text_": ""}


async def test_the_end_of_a_day_is_a_time_and_a_key(shop: Shop) -> None:
    clocks = ("00:00:00", "23:59:59", "24:00:00")
    shop.execute("CREATE TABLE closes (at TIME PRIMARY KEY)")
    shop.execute(*(f"INSERT INTO closes VALUES ('{each}')" for each in clocks))
    source = shop.source(batch_rows=1)

    found = [changes.rows["at"] async for batch in source.changes({}) for changes in batch.tables]

    seconds = [pc.divide(each.view(pa.int64()), 1_000_000).to_pylist() for each in found]
    assert seconds == [[0], [86_399], [86_400]]


KEYS = {
    "sqlite": {"": "(1), (2), (10)", "REAL": "(0.1), (0.2), (1e300)"},
    "postgresql": {
        "mood": "('z'), ('m'), ('a')",
        "REAL": "(16777.71), (16777.72), (16777.73)",
        "NUMERIC": "(12345678901234567890.1), (12345678901234567890.2), (3)",
    },
    "mariadb": {
        "ENUM('z', 'm', 'a')": "('z'), ('m'), ('a')",
        "ENUM('a', 'A') CHARACTER SET latin1 COLLATE latin1_bin": "('a'), ('A')",
        "SET('z', 'm', 'a')": "('z'), ('m'), ('z,a')",
        "FLOAT": "(16777.71), (16777.72), (16777.73)",
        "DECIMAL(25, 1)": "(12345678901234567890.1), (12345678901234567890.2), (3)",
        "BIT(8)": "(1), (65), (66)",
    },
}


@pytest.mark.parametrize("batch_rows", [1, 2])
async def test_a_key_of_any_type_is_read_in_parts_that_leave_no_row_out(
    shop: Shop, batch_rows: int
) -> None:
    if shop.kind == "postgresql":
        shop.execute("CREATE TYPE mood AS ENUM ('z', 'm', 'a')")
    kinds = [*KEYS[shop.kind].items()]
    for number, (kind, values) in enumerate(kinds):
        key = f"k {kind} NOT NULL, n INTEGER DEFAULT {{}} NOT NULL, PRIMARY KEY (k, n)"
        shop.execute(
            f"CREATE TABLE t{number} ({key.format(1)})",
            f"INSERT INTO t{number} (k) VALUES {values}",
            f"INSERT INTO t{number} SELECT k, 2 FROM t{number}",
        )

    found: dict[str, list[tuple[Any, ...]]] = {}
    async for batch in shop.source(batch_rows=batch_rows).changes({}):
        for changes in batch.tables:
            rows = [tuple(row.values()) for row in changes.rows.to_pylist()]
            found.setdefault(changes.schema.table.name, []).extend(rows)

    for number, (kind, values) in enumerate(kinds):
        rows = found[f"t{number}"]
        assert len(rows) == len(set(rows)) == 2 * values.count("("), kind


async def test_names_of_any_letters_are_quoted(shop: Shop) -> None:
    quote = "`" if shop.kind == "mariadb" else '"'
    strange = 'we"ird; DROP TABLE canary; -- 100% `ü'
    named = quote + strange.replace(quote, quote * 2) + quote
    shop.execute(
        "CREATE TABLE canary (id INTEGER PRIMARY KEY)",
        f"CREATE TABLE {named} ({named} INTEGER PRIMARY KEY, note VARCHAR(10))",
        f"INSERT INTO {named} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    source = shop.source(tables=["*we*"], cursor={"*we*": [strange]}, batch_rows=2)

    told, _ = await one_round(source)

    assert [row[strange] for _, row in told] == [1, 2, 3]
    shop.execute("SELECT id FROM canary")


@pytest.mark.parametrize("shop", ["mariadb"], indirect=True)
async def test_rows_are_read_alike_in_every_mode_of_the_server(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE `_Names` (id CHAR(9) PRIMARY KEY, note VARCHAR(9))",
        "INSERT INTO `_Names` VALUES ('a', 'b'), ('c', '\"')",
    )
    before, _ = await one_round(shop.source())

    with sql_mode(shop.url, "ANSI,PAD_CHAR_TO_FULL_LENGTH"):
        found, _ = await one_round(shop.source(batch_rows=1))

    assert [row for _, row in found] == [row for _, row in before]
    assert [row["id"] for _, row in found] == ["a", "c"]


async def test_a_cursor_that_is_not_there_is_said_before_anything_starts(shop: Shop) -> None:
    create_orders(shop)

    (finding,) = await shop.source(cursor={"orders": ["updated_at"]}).examine()

    assert finding.is_fatal and "updated_at" in finding.problem
    with pytest.raises(SourceRejected):
        await one_round(shop.source(cursor={"orders": ["updated_at"]}))


async def test_an_unreachable_database_is_unavailable_and_its_password_stays_secret(
    shop: Shop,
) -> None:
    broken = Shop(shop.kind, "postgresql://u:canary-secret@127.0.0.1:1/nothing", shop.directory)

    with pytest.raises(SourceUnavailable) as caught:
        await one_round(broken.source())
    (finding,) = await broken.source().examine()

    assert "canary-secret" not in f"{caught.value}{finding}{broken.source()._settings}"


async def test_a_cron_expression_says_when_the_next_round_is(shop: Shop) -> None:
    shop.clock.time_ms = round(datetime(2026, 3, 2, 8, 59, 30, tzinfo=UTC).timestamp() * 1_000)

    pause = shop.source(cron="0 9-17 * * mon-fri")._pause_s()

    assert pause == 30


async def test_a_database_knows_or_counts_how_many_rows_a_table_has(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(*(insert(number, "10:00:00") for number in range(200)))
    shop.execute("ANALYZE TABLE orders" if shop.kind == "mariadb" else "ANALYZE orders")

    [(table, rows)] = (await shop.source().row_estimates()).items()

    assert str(table) == f"{shop.prefix}orders"
    assert 150 <= rows <= 250


async def test_a_table_is_left_out_by_whichever_of_its_names(shop: Shop) -> None:
    if shop.kind == "mariadb":
        pytest.skip("its databases are not schemas")
    schema = {"sqlite": "main", "postgresql": "public"}[shop.kind]
    create_orders(shop)
    shop.execute("CREATE TABLE secrets (id INTEGER PRIMARY KEY)")

    for chosen in (["*", "!secrets"], ["*", f"!{schema}.secrets"], [f"{schema}.*", "!secrets"]):
        found = await shop.source(tables=chosen, namespaces=[schema]).discover()
        assert [each.table.name for each in found] == ["orders"]


@pytest.mark.parametrize("cursor", [["changed"], ["changed", "part"]])
async def test_a_cursor_that_would_go_past_rows_is_refused(shop: Shop, cursor: list[str]) -> None:
    key = ", PRIMARY KEY (id)" if "part" in cursor else ""
    changed = "DATETIME(6) NOT NULL" if shop.kind == "mariadb" else "TIMESTAMP NOT NULL"
    shop.execute(f"CREATE TABLE events (id INTEGER, changed {changed}, part INTEGER{key})")
    source = shop.source(cursor={"events": cursor}, batch_rows=2)

    (finding,) = await source.examine()

    assert finding.is_fatal
    with pytest.raises(SourceRejected):
        await one_round(source)


async def test_a_table_whose_key_is_not_there_holds_up_no_other(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(insert(1, "10:00:00"), "CREATE TABLE events (id INTEGER PRIMARY KEY)")
    settings: dict[str, Any] = {"tables": ["orders", "events"], "keys": {"events": ["gone"]}}

    found, _ = await one_round(shop.source(**settings))
    (finding,) = [each for each in await shop.source(**settings).examine() if each.is_fatal]
    schemas = await shop.source(**settings).discover()

    assert [row["id"] for _, row in found] == [1]
    assert "events" in finding.problem and "gone" in finding.problem
    assert [each.table.name for each in schemas] == ["orders"]


async def test_the_lag_of_large_numbers_is_exact(shop: Shop) -> None:
    newest = (1 << 60) + 129  # as a double it is larger by 127
    shop.execute("CREATE TABLE log (id BIGINT PRIMARY KEY)", f"INSERT INTO log VALUES ({newest})")
    settings: dict[str, Any] = {"cursor": {"log": ["id"]}, "lag_count": 50}
    _, stands = await one_round(shop.source(**settings))
    shop.execute(*(f"INSERT INTO log VALUES ({newest + each})" for each in (-50, 1, 40)))

    told, _ = await one_round(shop.source(**settings), stands)

    assert ids(told) == [("u", newest + each) for each in (-50, 0, 1, 40)]


async def test_a_cursor_of_days_has_the_lag_of_times(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE log (id INTEGER PRIMARY KEY, day DATE NOT NULL)",
        "INSERT INTO log VALUES (5, '2026-01-03')",
    )
    settings: dict[str, Any] = {"cursor": {"log": ["day"]}, "lag_ms": 36 * 3_600_000}
    _, stands = await one_round(shop.source(**settings))
    shop.execute("INSERT INTO log VALUES (4, '2026-01-03'), (6, '2026-01-01')")

    told, _ = await one_round(shop.source(**settings), stands)

    assert ids(told) == [("u", 6), ("u", 4), ("u", 5)]


async def test_a_column_may_begin_with_any_number_of_nulls(shop: Shop) -> None:
    shop.execute(
        "CREATE TABLE things (id INTEGER PRIMARY KEY, day DATE, done BOOLEAN)",
        *(f"INSERT INTO things VALUES ({number}, NULL, NULL)" for number in range(101)),
        "INSERT INTO things VALUES (200, '2026-02-28', FALSE)",
    )

    told, _ = await one_round(shop.source())

    assert told[-1] == ("r", {"id": 200, "day": date(2026, 2, 28), "done": False})


async def test_a_table_whose_key_is_bytes_is_read_whole_beside_a_cursor_too(shop: Shop) -> None:
    raw = {"sqlite": "BLOB", "postgresql": "BYTEA", "mariadb": "BINARY(2)"}[shop.kind]
    text = r"'\x0001'" if shop.kind == "postgresql" else "X'0001'"
    changed = ORDERS_IN.get(shop.kind, ORDERS).partition("changed ")[2]
    shop.execute(
        f"CREATE TABLE orders (id {raw} PRIMARY KEY, changed {changed}",
        f"INSERT INTO orders VALUES ({text}, '2026-01-01 10:00:00')",
    )

    told, _ = await one_round(shop.source(cursor=CURSOR))

    assert [row["id"] for _, row in told] == [b"\x00\x01"]


@pytest.mark.slow
async def test_a_value_may_be_large(shop: Shop) -> None:
    large = "LONGTEXT" if shop.kind == "mariadb" else "TEXT"
    shop.execute(f"CREATE TABLE things (id INTEGER PRIMARY KEY, note {large})")
    shop.execute(f"INSERT INTO things VALUES (1, '{'x' * (3 << 20)}')")

    [(_, row)], _ = await one_round(shop.source())

    assert len(row["note"]) == 3 << 20


async def test_a_table_that_comes_while_others_are_read_is_read_by_the_same_run(shop: Shop) -> None:
    create_orders(shop)
    shop.execute(insert(1, "10:00:00"))
    found: list[tuple[str, int]] = []

    async for batch in shop.source(deletes="compare").changes({}):
        if not found:
            shop.execute(
                "CREATE TABLE items (id INTEGER PRIMARY KEY)", "INSERT INTO items VALUES (7)"
            )
        found += ids(changes_in(batch))

    assert [each for each in found if each[0] == "r"] == [("r", 1), ("r", 7)]
