"""Whatever is wrong with a table is found, named by its key, and mended; what is right is equal."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import SCHEMA_HEADER
from headwater.pipelines.time_travel.verify import repair_target, verify
from headwater.pipelines.time_travel.verify.keyed_diff import DifferenceKind
from headwater.pipelines.time_travel.verify.result import ComparedSides, TableVerdict
from tests.databases import database_in
from tests.pipelines.time_travel.world import World, tell

SHOP = """
pipeline: shop
source: {type: generator, size: 1000, total: 4000, rate: 0, batch_rows: 500}
sink: {type: sql, url: "TARGET", commit_every: 0s}
transform:
  - {table: shop.customers, mask: {email: hash}}
  - {table: shop.orders, filter: "status <> 'cancelled'", add: {doubled: "id * 2"}}
route: [{from: shop.orders, to: crm.purchases}]
log: {partitions: 2}
"""
POLLED = """
pipeline: copy
source: {type: sql, url: "sqlite:///source.db", tables: ["*"], deletes: compare}
sink: {type: sql, url: "sqlite:///target.db", commit_every: 0s}
"""


def shop(url: str = "sqlite:///target.db") -> str:
    return SHOP.replace("TARGET", url)


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)


def rows(path: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(question).fetchall()


def problems(verdict: TableVerdict) -> dict[DifferenceKind, int]:
    return {kind: count for kind, count in verdict.compared.counts.items() if count}


def named(verdict: TableVerdict) -> Sequence[tuple[Any, str]]:
    return sorted((each["key"]["id"], each["problem"]) for each in verdict.named)


@pytest.mark.slow
def test_a_pipeline_that_ran_is_equal_on_every_side(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        await world.run()
        return await world.verified()

    found = tell(tmp_path, shop(), story)

    assert len(found) == 2 * 4
    assert all(verdict.is_equal for verdict in found.values()), found
    assert found["crm.purchases", "sql"].compared.rows > 0


@pytest.mark.slow
def test_damage_of_every_kind_is_named_and_mended(tmp_path: Path) -> None:
    target = tmp_path / "target.db"

    async def story(world: World) -> Any:
        await world.run()
        columns = ", ".join(each[1] for each in rows(target, "PRAGMA table_info(purchases)")[1:])
        ids = [id for (id,) in rows(target, "SELECT id FROM purchases ORDER BY id LIMIT 2")]
        execute(
            target,
            f"INSERT INTO purchases SELECT 999999, {columns} FROM purchases WHERE id = {ids[0]}",
            f"DELETE FROM purchases WHERE id = {ids[0]}",
            f"UPDATE purchases SET note = 'scribbled' WHERE id = {ids[1]}",
        )
        found = await world.verified("purchases", sides=ComparedSides(source=False))
        mended = await world.verified("purchases", sides=ComparedSides(source=False), repairs=True)
        return ids, found["crm.purchases", "sql"], mended["crm.purchases", "sql"]

    ids, found, mended = tell(tmp_path, shop(), story)

    assert problems(found) == {
        DifferenceKind.CHANGED: 1,
        DifferenceKind.MISSING: 1,
        DifferenceKind.EXTRA: 1,
    }
    assert named(found) == [
        (ids[0], DifferenceKind.MISSING.value),
        (ids[1], DifferenceKind.CHANGED.value),
        (999_999, DifferenceKind.EXTRA.value),
    ]
    assert (mended.is_equal, mended.repaired) == (True, 3)


@pytest.mark.slow
def test_a_target_that_has_applied_nothing_is_not_equal(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        await world.run("source")
        return await world.verified("purchases", sides=ComparedSides(source=False))

    found = tell(tmp_path, shop(), story)["crm.purchases", "sql"]

    assert "applied nothing" in found.problem
    assert found.is_failed and not found.is_equal


@pytest.mark.slow
def test_a_target_that_is_behind_says_so(tmp_path: Path) -> None:
    """Rows that it does not have yet are not compared."""

    async def story(world: World) -> Any:
        execute(tmp_path / "source.db", "CREATE TABLE t (id INTEGER PRIMARY KEY)",
                "INSERT INTO t VALUES (1)")  # fmt: skip
        await world.run()
        caught_up = await world.verified()
        execute(tmp_path / "source.db", "INSERT INTO t VALUES (2)")
        await world.run("source")
        return caught_up["t", "sql"].behind, (await world.verified())["t", "sql"].behind

    caught_up, behind = tell(tmp_path, POLLED, story)

    assert caught_up == 0
    assert behind > 0


@pytest.mark.slow
def test_a_table_of_the_source_that_the_log_lacks_is_named(tmp_path: Path) -> None:
    """An empty one is as it is in the log: not there."""

    async def story(world: World) -> Any:
        execute(tmp_path / "source.db", "CREATE TABLE t (id INTEGER PRIMARY KEY)",
                "INSERT INTO t VALUES (1)")  # fmt: skip
        await world.run()
        execute(tmp_path / "source.db", "CREATE TABLE empty (id INTEGER PRIMARY KEY)",
                "CREATE TABLE later (id INTEGER PRIMARY KEY)",
                "INSERT INTO later VALUES (1)")  # fmt: skip
        return await world.verified()

    found = tell(tmp_path, POLLED, story)

    assert "does not have its rows" in found["later", "source"].problem
    assert found["t", "source"].is_equal
    assert ("empty", "source") not in found


@pytest.mark.slow
def test_mending_keeps_the_sink_where_it_stands(tmp_path: Path) -> None:
    async def story(world: World) -> Any:
        await world.run()
        execute(tmp_path / "target.db", "DELETE FROM customers")
        before = rows(tmp_path / "target.db", "SELECT * FROM _headwater_offsets")
        await world.verified("customers", sides=ComparedSides(source=False), repairs=True)
        after = rows(tmp_path / "target.db", "SELECT * FROM _headwater_offsets")
        await world.run()
        return before, after, await world.verified("customers")

    before, after, found = tell(tmp_path, shop(), story)

    assert before == after
    assert all(verdict.is_equal for verdict in found.values())


@pytest.mark.slow
def test_a_target_that_lags_behind_is_equal_to_the_log_as_of_where_it_stands(
    tmp_path: Path,
) -> None:
    """Else it could never be verified under load."""

    async def story(world: World) -> Any:
        execute(tmp_path / "source.db", "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
                "INSERT INTO t VALUES (1, 'a'), (2, 'b')")  # fmt: skip
        await world.run()
        execute(tmp_path / "source.db", "UPDATE t SET v = 'new'", "INSERT INTO t VALUES (3, 'c')")
        await world.run("source")
        return await world.verified()

    found = tell(tmp_path, POLLED, story)

    assert all(verdict.is_equal for verdict in found.values())
    assert found["t", "source"].compared.rows == 3
    assert found["t", "sql"].compared.rows == 2


@pytest.mark.slow
def test_rows_that_the_log_missed_are_read_from_the_source_and_reach_the_targets(
    tmp_path: Path,
) -> None:
    source = tmp_path / "source.db"

    async def story(world: World) -> Any:
        execute(source, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
                "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")  # fmt: skip
        await world.run()
        execute(source, "UPDATE t SET v = 'unseen' WHERE id = 2", "DELETE FROM t WHERE id = 3",
                "INSERT INTO t VALUES (9, 'i')")  # fmt: skip
        found = await world.verified(sides=ComparedSides(targets=False))
        mended = await world.verified(sides=ComparedSides(targets=False), repairs=True)
        await world.run("sql")
        return found["t", "source"], mended["t", "source"], await world.verified()

    found, mended, after = tell(tmp_path, POLLED, story)

    assert named(found) == [
        (2, DifferenceKind.CHANGED.value),
        (3, DifferenceKind.MISSING.value),
        (9, DifferenceKind.EXTRA.value),
    ]
    assert (mended.is_equal, mended.repaired) == (True, 3)
    assert all(verdict.is_equal for verdict in after.values())
    assert rows(tmp_path / "target.db", "SELECT id, v FROM t ORDER BY id") == [
        (1, "a"),
        (2, "unseen"),
        (4, "d"),
        (9, "i"),
    ]


@pytest.mark.parametrize("server", ["postgres", "mariadb"])
def test_tables_of_a_server_are_verified_and_mended(
    tmp_path: Path, request: pytest.FixtureRequest, server: str
) -> None:
    async def story(world: World) -> Any:
        await world.run()
        first = await world.verified(sides=ComparedSides(source=False))
        with world_engine(url).begin() as connection:
            connection.exec_driver_sql("DELETE FROM customers")
        second = await world.verified("customers", sides=ComparedSides(source=False))
        third = await world.verified("customers", sides=ComparedSides(source=False), repairs=True)
        return first, second["shop.customers", "sql"], third["shop.customers", "sql"]

    with database_in(request.getfixturevalue(server), f"verify_{server}") as url:
        first, second, third = tell(tmp_path, shop(url), story)

    assert all(verdict.is_equal for verdict in first.values()), first
    assert second.compared.counts[DifferenceKind.MISSING] == second.compared.log_rows > 0
    assert third.is_equal


def world_engine(url: str) -> Any:
    from headwater.core_log.foundation.database_url import engine_at

    return engine_at(url, directory=Path(), timeout_ms=10_000)


@pytest.mark.slow
def test_the_command_names_the_keys_and_ends_in_four(
    tmp_path: Path, headwater: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        await world.run()
        execute(
            tmp_path / "target.db",
            "DELETE FROM products WHERE id = 7",
            "UPDATE products SET price = '0.01', name = NULL WHERE id = 9",
        )

    tell(tmp_path, shop(), story)
    file = tmp_path / "pipeline.yaml"

    ran = headwater("verify", "shop/products", "--against", "log", "-f", file, "--json")
    shown = headwater("verify", "shop/products", "--against", "log", "-f", file)
    mended = headwater("verify", "shop/products", "--against", "log", "-f", file, "--repair")
    again = headwater("verify", "shop", "-f", file, "--json")

    assert ran.code == 4
    [table] = ran.envelope["data"]["tables"]
    changed, missing = sorted(table["keys"], key=lambda each: -each["key"]["id"])
    assert (missing["key"], missing["problem"]) == ({"id": 7}, "is missing")
    assert missing["log"]["id"] == "7" and missing["there"] is None
    assert changed["log"].keys() == changed["there"].keys()
    others = {each for each in changed["log"] if changed["log"][each] != changed["there"][each]}
    assert others == {"name", "price"}
    assert (changed["there"]["name"], changed["there"]["price"]) == (None, "0.01")
    assert '{"id": 9} has other values in name, price' in shown.data
    assert (mended.code, again.code) == (0, 0)
    assert "2 rows repaired" in mended.data
    assert {each["equal"] for each in again.envelope["data"]["tables"]} == {True}


async def append_again(world: World, *, at: int, value: bytes | None = None) -> None:
    """Once more the record that stands there, with another value where one is given."""
    place = TopicPartition("copy.t", 0)
    [fetched] = await world.log.fetch(
        {place: at}, limit=FetchLimit(bytes_max=1), isolation=Isolation.COMMITTED
    )
    columns = arrow_codec.decode(fetched.data, from_offset=at)
    schema = header_column(columns.headers, SCHEMA_HEADER)[0].as_py()
    record = PlainRecord(
        columns.keys[0].as_py(),
        value or columns.values[0].as_py(),
        headers=[(SCHEMA_HEADER, schema)],
        timestamp_ms=1,
    )
    data = encode_batch([record])
    await world.log.append(place, Batch(data, 1))


@pytest.mark.slow
def test_a_record_that_nobody_can_decode_is_named_and_the_others_are_compared(
    tmp_path: Path, headwater: Any
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"

    async def story(world: World) -> Any:
        execute(source, "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
                "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")  # fmt: skip
        await world.run()
        await append_again(world, at=2, value=b"no event")
        await append_again(world, at=1)
        await world.run("sql")
        first = await world.verified()
        execute(target, "UPDATE t SET v = 'x'")
        mended = await world.verified(sides=ComparedSides(source=False), repairs=True)
        return first, mended

    first, mended = tell(tmp_path, POLLED, story)
    ran = headwater("verify", "copy", "--json", "-f", tmp_path / "pipeline.yaml")

    async def replaced(world: World) -> Any:
        execute(source, "UPDATE t SET v = 'e' WHERE id = 2")
        await world.run()
        return await world.verified()

    after = tell(tmp_path, POLLED, replaced)

    [(place, offset)] = first["t", "sql"].unread
    assert (place.topic, place.partition) == ("copy.t", 0)
    for each in (first["t", "source"], first["t", "sql"], mended["t", "sql"]):
        assert each.unread == [(place, offset)] and not each.is_equal and each.is_as_told
    assert mended["t", "sql"].repaired == 3
    assert ran.code == 4
    assert ran.envelope["data"]["tables"][1]["unread"] == [
        {"topic": "copy.t", "partition": 0, "offset": offset}
    ]
    assert all(each.is_equal for each in after.values()), after


@pytest.mark.slow
def test_a_repair_takes_no_column_away_that_came_while_the_table_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "source.db", tmp_path / "target.db"
    really = repair_target.repair_target

    async def none_moved(*_: Any) -> set[int]:
        """PostgreSQL adds a column without a word of its rows."""
        return set()

    async def story(world: World) -> Any:
        async def later(*given: Any) -> int:
            execute(source, "ALTER TABLE t ADD x TEXT", "INSERT INTO t VALUES (4, 'd', 'new')")
            await world.run()
            execute(target, "DELETE FROM t WHERE id = 2")
            monkeypatch.setattr(verify, "repair_target", really)
            return await really(*given)

        execute(
            source,
            "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        )
        await world.run()
        execute(target, "DELETE FROM t WHERE id = 2")
        monkeypatch.setattr(verify, "repair_target", later)
        monkeypatch.setattr(repair_target, "_moved_since", none_moved)
        first = await world.verified("t", sides=ComparedSides(source=False), repairs=True)
        held = rows(target, "SELECT id, x FROM t ORDER BY id")
        return (
            first,
            held,
            await world.verified("t", sides=ComparedSides(source=False), repairs=True),
        )

    first, held, again = tell(tmp_path, POLLED, story)

    assert "another form after it was compared" in first["t", "sql"].unrepaired
    assert held == [(1, None), (3, None), (4, "new")]
    assert again["t", "sql"].is_equal and again["t", "sql"].repaired == 1
    assert rows(target, "SELECT id, v, x FROM t WHERE id IN (2, 4) ORDER BY id") == [
        (2, "b", None),
        (4, "d", "new"),
    ]
