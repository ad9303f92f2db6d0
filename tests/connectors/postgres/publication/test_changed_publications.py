"""What somebody does to the publication behind our back is noticed, at a start and in between, and
nothing that was missed for it is passed over."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.catalog import Catalog
from headwater.connectors.postgres.publication import coverage, monitor, published_tables
from headwater.connectors.postgres.publication.excluded_tables import UNLOGGED
from headwater.connectors.postgres.publication.monitor import (
    FILTERED,
    LOOK_MS,
    NEW_TABLES,
    REFUSED,
    CaptureMonitor,
)
from headwater.connectors.postgres.publication.replica_identity import RefusedTable
from headwater.connectors.postgres.schema_history.schema_monitor import FormWatch
from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.types.type_map import TypeMap
from headwater.connectors.source import Remark, SourceContext, SourceReport
from headwater.core_log.foundation.errors import PositionLost, SourceRejected, SourceUnavailable
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.slot.test_lost_positions import PIPELINE, rows_of, run_once, said_of
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.connectors.postgres.source_session import Story, events_of, story
from tests.databases import Guest
from tests.fakes import SimulatedClock

NAME = "headwater_shop"
HEARTBEATS = 100
"""Within so many heartbeats a source has looked at its tables."""
TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text)",
    "CREATE TABLE emptied (id int PRIMARY KEY, note text)",
    "INSERT INTO orders SELECT g, 'seen' FROM generate_series(1, 30) g",
    "INSERT INTO emptied SELECT g, 'seen' FROM generate_series(1, 30) g",
)
BEFORE = ("INSERT INTO orders VALUES (40, 'sent')", "INSERT INTO emptied VALUES (40, 'sent')")
UNSEEN = (
    "DELETE FROM orders WHERE id IN (1, 40)",
    "UPDATE orders SET note = 'unseen' WHERE id = 7",
    "INSERT INTO orders VALUES (41, 'unseen')",
)
MAKE = (
    f"CREATE PUBLICATION {NAME} FOR TABLE orders, emptied WITH (publish_via_partition_root = true)"
)
ACCIDENTS = {
    "out for a while": (
        *BEFORE,
        f"ALTER PUBLICATION {NAME} DROP TABLE orders",
        *UNSEEN,
        f"ALTER PUBLICATION {NAME} ADD TABLE orders",
    ),
    "made anew": (*BEFORE, f"DROP PUBLICATION {NAME}", *UNSEEN, MAKE),
}


@pytest.fixture
def shop(guest: Guest) -> Guest:
    guest.execute(*TABLES, MAKE)
    return guest


@pytest.mark.parametrize("accident", ACCIDENTS.values(), ids=ACCIDENTS)
async def test_unpublished_changes_are_reported_and_read_again_if_the_file_says_so(
    shop: Guest, tmp_path: Path, accident: tuple[str, ...]
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(url=shop.url, mismatch="stop"))
    await run_once(file)
    shop.execute(*accident)

    [foreseen] = await said_of(file)
    with pytest.raises(PositionLost) as lost:
        await run_once(file)
    file.write_text(PIPELINE.format(url=shop.url, mismatch="resnapshot"))
    [harmless] = await said_of(file)
    await run_once(file)
    shop.execute("UPDATE orders SET note = 'after' WHERE id = 9")
    await run_once(file)

    assert "publication" in lost.value.problem and "resnapshot" in lost.value.hint
    assert foreseen.problem == harmless.problem == lost.value.statement
    assert foreseen.is_fatal and not harmless.is_fatal
    assert [each.problem for each in await said_of(file)] == [""]
    assert rows_of(tmp_path) == {
        table: shop.rows(f"SELECT id, note FROM {table} ORDER BY id")
        for table in ("orders", "emptied")
    }


@pytest.mark.parametrize(
    "accident",
    [
        f"ALTER PUBLICATION {NAME} DROP TABLE orders",
        f"ALTER PUBLICATION {NAME} SET (publish = 'insert')",
        f"DROP PUBLICATION {NAME}",
        f"ALTER PUBLICATION {NAME} DROP TABLE orders;ALTER PUBLICATION {NAME} ADD TABLE orders",
    ],
)
async def test_a_changed_publication_is_noticed_with_the_next_heartbeat(
    shop: Guest, accident: str
) -> None:
    async with story(shop, heartbeat="100ms") as told:
        shop.execute(*accident.split(";"))

        with pytest.raises(SourceUnavailable, match="the publication was changed") as end:
            await ending(told)

    assert "public.orders" in str(end.value.facts["tables"])


async def test_a_schema_that_was_out_for_a_while_is_missed(guest: Guest) -> None:
    if guest.value("SELECT current_setting('server_version_num')::int") < 15_0000:
        pytest.skip("publications of schemas came with PostgreSQL 15")
    guest.execute(*TABLES, MAKE.replace("TABLE orders, emptied", "TABLES IN SCHEMA public"))
    async with story(guest) as told:
        await told.tell(*BEFORE)
    guest.execute(
        f"ALTER PUBLICATION {NAME} DROP TABLES IN SCHEMA public",
        *UNSEEN,
        f"ALTER PUBLICATION {NAME} ADD TABLES IN SCHEMA public",
    )

    with pytest.raises(PositionLost, match="without captured tables") as lost:
        async with story(guest, positions=told.positions):
            pass
    async with story(guest, positions=told.positions, position_mismatch="resnapshot") as again:
        events = await again.tell("DELETE FROM emptied")

    assert "public.emptied, public.orders" in str(lost.value.facts["tables"])
    of_rows = {"r"}  # which may still be read, beside the stream
    assert {event.operation for event in events} - of_rows == {"d"}


async def test_a_captured_table_that_is_made_unlogged_is_left_out_and_read_again_later(
    guest: Guest,
) -> None:
    """What was written meanwhile is in no log, so that all of it is read once it is logged."""
    guest.execute(*TABLES)
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)

    async with story(guest, positions=folded.positions, heartbeat="100ms") as told:
        await guest.run("ALTER TABLE orders SET UNLOGGED")
        with pytest.raises(SourceUnavailable, match="made unlogged") as end:
            await ending(told)
    guest.execute(*UNSEEN, "DELETE FROM emptied WHERE id = 3")
    await until_equal(folded, guest)
    left = differing(folded, guest, "orders")
    guest.execute("ALTER TABLE orders SET LOGGED", "DELETE FROM emptied WHERE id = 4")
    await until_equal(folded, guest)

    assert "SET LOGGED" in end.value.hint and "public.orders" in str(end.value.facts["tables"])
    assert left, "the table was left out"
    assert not differing(folded, guest, "orders") and not differing(folded, guest, "emptied")


async def test_tables_that_are_not_streamed_are_reported_from_the_start(guest: Guest) -> None:
    guest.execute(*TABLES, "ALTER TABLE orders SET UNLOGGED")
    guest.publish()
    said: list[SourceReport] = []

    await until_equal(Folded(), guest, report=said.append)
    unlogged = [each for each in said if isinstance(each, Remark) and each.name == UNLOGGED]
    with pytest.raises(SourceRejected, match="no table matches") as none:
        await until_equal(Folded(), guest, tables=["public.orders"])

    assert unlogged[0].finding is not None and len(unlogged) == 1
    assert "public.orders" in unlogged[0].finding.problem
    assert "unlogged" in str(none.value.facts["why"]) and "SET LOGGED" in none.value.hint


async def test_a_dropped_table_or_an_attached_partition_ends_nothing(shop: Guest) -> None:
    clock = SimulatedClock(0)
    tables = [TableId("public", "orders"), TableId("public", "emptied")]
    watch, _ = await watching(shop, tables, clock)
    shop.execute("DROP TABLE emptied")

    async with await connect(settings_of(shop)) as connection:
        assert await watch.look(connection) is None


@pytest.mark.parametrize(
    "changes",
    [
        ("DROP TABLE orders", "CREATE TABLE orders (number int PRIMARY KEY)"),
        (
            "ALTER TABLE orders RENAME TO old",
            "ALTER TABLE emptied RENAME TO orders",
            "ALTER TABLE old RENAME TO emptied",
        ),
    ],
    ids=["made anew", "names exchanged"],
)
async def test_another_table_of_the_same_name_is_found_and_read_however_it_is_published(
    guest: Guest, changes: tuple[str, ...]
) -> None:
    """Of a publication for all tables the entry says nothing about it."""
    guest.execute(*TABLES, "DELETE FROM emptied WHERE id > 5")
    guest.publish()
    folded, clock = Folded(), SimulatedClock(0)
    await until_equal(folded, guest)
    tables = [TableId("public", "orders"), TableId("public", "emptied")]
    watch, _ = await watching(guest, tables, clock)
    async with await connect(settings_of(guest)) as connection:
        assert await watch.look(connection) is None
        guest.execute(*changes, "INSERT INTO orders VALUES (50)")
        clock.advance(LOOK_MS)
        found = await watch.look(connection)
    await until_equal(folded, guest)

    assert found is not None and "public.orders" in str(found.facts["tables"])
    assert not differing(folded, guest, "orders") and not differing(folded, guest, "emptied")


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("DROP TABLE orders", "CREATE TABLE orders (id int PRIMARY KEY, other int)"),
        ("ALTER TABLE orders SET SCHEMA away", "ALTER TABLE away.orders SET SCHEMA public"),
    ],
    ids=["made anew", "moved back"],
)
async def test_a_table_that_was_gone_at_a_start_and_comes_back_is_read(
    guest: Guest, monkeypatch: pytest.MonkeyPatch, away: str, back: str
) -> None:
    monkeypatch.setattr(monitor, "LOOK_MS", 0)
    guest.execute(*TABLES, "CREATE SCHEMA away")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute(away)
    await until_equal(folded, guest)

    async with story(guest, positions=folded.positions, heartbeat="100ms") as told:
        guest.execute(back, "INSERT INTO orders VALUES (50)")
        with pytest.raises(SourceUnavailable, match="there again") as end:
            while len(told.notices) < HEARTBEATS:
                await told.tell("UPDATE emptied SET note = 'seen'")
    await until_equal(folded, guest)

    assert "public.orders" in str(end.value.facts["tables"])
    assert not differing(folded, guest, "orders") and not differing(folded, guest, "emptied")


async def test_new_tables_and_filters_are_remarked_on_until_they_are_gone(shop: Guest) -> None:
    clock = SimulatedClock(0)
    watch, said = await watching(shop, [TableId("public", "orders")], clock)

    async with await connect(settings_of(shop)) as connection:
        assert await watch.look(connection) is None
        shop.execute("DROP TABLE emptied")
        clock.advance(LOOK_MS)
        assert await watch.look(connection) is None

    [first, second] = said
    assert isinstance(first, Remark) and isinstance(second, Remark)
    assert (first.name, second.name) == (NEW_TABLES, NEW_TABLES)
    assert first.finding is not None and "public.emptied match" in first.finding.problem
    assert second.finding is None


async def test_a_table_that_is_cured_is_remarked_on_until_it_is_read_again(shop: Guest) -> None:
    """A run that ends before that has not delivered it."""
    orders = TableId("public", "orders")
    oid = shop.value("SELECT 'orders'::regclass::oid::int8")
    refused = RefusedTable(oid, orders, "the server does not say which row went", "cure it")
    watch, said = await watching(shop, [orders], SimulatedClock(0), [refused])

    async with await connect(settings_of(shop)) as connection:
        error = await watch.look(connection)

    assert isinstance(error, SourceUnavailable) and "can be captured by now" in error.problem
    remarks = [each for each in said if isinstance(each, Remark) and each.name == REFUSED]
    assert remarks[-1].finding is not None
    assert remarks[-1].finding.left_out == ("public.orders",)


async def test_rows_that_are_left_out_are_remarked_on(guest: Guest) -> None:
    if guest.value("SELECT current_setting('server_version_num')::int") < 15_0000:
        pytest.skip("row filters came with PostgreSQL 15")
    guest.execute(*TABLES, MAKE.replace("orders,", "orders WHERE (id > 5),"))
    tables = [TableId("public", "orders"), TableId("public", "emptied")]
    watch, said = await watching(guest, tables, SimulatedClock(0))

    async with await connect(settings_of(guest)) as connection:
        assert await watch.look(connection) is None

    [remark] = said
    assert isinstance(remark, Remark) and remark.finding is not None
    assert (remark.name, remark.finding.is_fatal) == (FILTERED, False)
    assert "leaves out rows or columns of public.orders" in remark.finding.problem


async def test_a_slot_that_somebody_drops_ends_the_life_and_the_next_says_so(shop: Guest) -> None:
    async with story(shop, heartbeat="100ms") as told:
        shop.execute(
            "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots",
            f"SELECT pg_drop_replication_slot('{NAME}')",
        )

        with pytest.raises((SourceUnavailable, SourceRejected)):  # before the stream began
            await ending(told)
    with pytest.raises(PositionLost, match="the replication slot is gone"):
        async with story(shop, positions=told.positions):
            pass


async def ending(told: Story) -> None:
    while not isinstance(found := await told.batches.get(), Exception):
        continue
    raise found


def settings_of(guest: Guest, **choices: Any) -> PostgresSettings:
    return PostgresSettings(url=SecretStr(guest.url), tables=("public.*",), **choices)


async def watching(
    guest: Guest, tables: list[TableId], clock: SimulatedClock, refused: Sequence[RefusedTable] = ()
) -> tuple[CaptureMonitor, list[SourceReport]]:
    said: list[SourceReport] = []
    async with await connect(settings_of(guest)) as connection:
        found = await published_tables.look(connection, NAME)
        book = await TypeMap.load(connection, settings_of(guest))
    catalog = Catalog([], {}, NAME, book)
    numbers = {each: guest.value(f"SELECT '{each}'::regclass::oid::int8") for each in tables}
    context = SourceContext("shop", Path(), clock, said.append)
    entries = coverage.position_value(found, tables)
    forms = FormWatch([], catalog, {}, may_read=True)
    return CaptureMonitor(settings_of(guest), context, NAME, numbers, entries, forms, refused), said


@pytest.mark.parametrize("mismatch", ["stop", "resnapshot"])
async def test_a_publication_that_is_dropped_under_the_stream_is_a_gap_that_the_file_decides_on(
    guest: Guest, mismatch: str
) -> None:
    guest.execute("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    """From PostgreSQL 18 on the stream goes on without it, and the next heartbeat sees that."""
    choices: dict[str, Any] = {"url": guest.owner, "position_mismatch": mismatch}

    async with story(guest, heartbeat="100ms", **choices) as told:
        with pytest.raises(SourceUnavailable, match="publication"):
            await told.tell("DROP PUBLICATION headwater_shop", "INSERT INTO orders VALUES (2)")
            await ending(told)
        positions = dict(told.positions)
    guest.until_nobody_streams()

    if mismatch == "stop":
        with pytest.raises(PositionLost, match="publication is gone") as lost:
            async with story(guest, positions=positions, **choices):
                pass
        assert "resnapshot" in lost.value.hint
    else:
        async with story(guest, positions=positions, **choices) as told:
            found = [event for changes in told.tables for event in events_of(changes)]
        assert [each.operation for each in found] == ["t", "r", "r"]
