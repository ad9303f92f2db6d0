"""Every version of PostgreSQL is read in the same way: rows that are there, then changes."""

from collections.abc import Iterator

import pytest

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.postgres.server.connection import connect
from headwater.core_log.foundation.errors import SourceRejected
from scripts.embedded_postgres import EmbeddedPostgres, PostgresMissing, embedded_postgres
from tests.connectors.postgres.publication.test_changed_publications import settings_of
from tests.connectors.postgres.source_session import events_of, story
from tests.databases import Guest, guest_in

pytestmark = pytest.mark.integration

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, note text, at timestamptz DEFAULT '2026-01-01')",
    "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
    "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (100)",
    "INSERT INTO orders SELECT g, 'it was here' FROM generate_series(1, 50) g",
    "INSERT INTO days VALUES (1)",
)


@pytest.fixture(scope="module", params=[16, 18])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedPostgres]:
    """The system's own version is what all other tests run with."""
    try:
        with embedded_postgres(version=request.param) as server:
            yield server
    except PostgresMissing as missing:
        pytest.fail(str(missing))


@pytest.fixture
def other(server: EmbeddedPostgres) -> Iterator[Guest]:
    with guest_in(server.address, "versions") as guest:
        yield guest


async def test_rows_and_changes_are_the_same_in_every_version(other: Guest) -> None:
    other.execute(*TABLES)
    other.publish()

    async with story(other) as told:
        found = await told.tell(
            "INSERT INTO orders VALUES (51, 'new')",
            "UPDATE orders SET note = 'changed' WHERE id = 1",
            "UPDATE orders SET id = 100 WHERE id = 2",
            "DELETE FROM orders WHERE id = 3",
            "INSERT INTO days VALUES (2)",
            "TRUNCATE days",
        )

    everything = [event for changes in told.tables for event in events_of(changes)]
    assert [each.operation for each in everything].count("r") == 51
    assert [(each.table, each.operation) for each in found if each.operation != "r"] == [
        ("orders", "c"), ("orders", "u"), ("orders", "d"), ("orders", "c"), ("orders", "d"),
        ("days", "c"), ("days", "t"),
    ]  # fmt: skip


async def test_a_slot_made_without_a_copy_gets_one_when_that_is_wanted(other: Guest) -> None:
    other.execute(*TABLES)
    other.publish()
    question = "SELECT to_jsonb(s) ->> 'failover' FROM pg_replication_slots s"

    async with story(other, slot={"failover": "never"}) as told:
        before, positions = other.value(question), told.positions
    async with story(other, positions=positions) as told:
        await told.tell("INSERT INTO orders VALUES (60, 'new')")
        after = other.value(question)

    is_possible = other.value("SELECT current_setting('server_version_num')::int >= 170000")
    assert (before, after) == (("false", "true") if is_possible else (None, None))


@pytest.mark.parametrize("replication", [False, True])
async def test_a_limit_of_the_role_for_transactions_is_none_of_ours(
    other: Guest, replication: bool
) -> None:
    """The rows that are there are read in one, and a large one is streamed in one."""
    if other.value("SELECT current_setting('server_version_num')::int") < 17_0000:
        pytest.skip("transactions are limited since PostgreSQL 17")
    other.execute("ALTER ROLE headwater_guest IN DATABASE versions SET transaction_timeout = 20")

    settings = settings_of(other)
    async with await connect(settings, replication=replication) as connection:
        found = await (await connection.execute("SELECT 1 FROM pg_sleep(0.1)")).fetchall()

    assert found == [(1,)]


async def test_generated_columns_are_left_out_though_a_publication_has_them(other: Guest) -> None:
    if other.value("SELECT current_setting('server_version_num')::int") < 18_0000:
        pytest.skip("publications may have generated columns since PostgreSQL 18")
    other.execute(
        "CREATE TABLE lines (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED,"
        " thrice int GENERATED ALWAYS AS (id * 3) VIRTUAL, note text)",
        "INSERT INTO lines (id, note) VALUES (1, 'it was here')",
        "CREATE PUBLICATION headwater_shop FOR TABLE lines"
        " WITH (publish_via_partition_root = true, publish_generated_columns = stored)",
    )

    async with story(other) as told:
        await told.tell(
            "INSERT INTO lines (id, note) VALUES (2, 'new')", "UPDATE lines SET id = 3 * id"
        )

    assert {tuple(changes.schema.names) for changes in told.tables} == {("id", "note")}


def as_owner(guest: Guest) -> Guest:
    """The source may make its publication itself."""
    return Guest(guest.owner, guest.owner)


TOTALS = (
    "CREATE TABLE totals (id int PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2) STORED)",
    "ALTER TABLE totals REPLICA IDENTITY FULL",
    "INSERT INTO totals (id, n) VALUES (1, 1)",
)


@pytest.mark.parametrize("is_there", [False, True], ids=["made", "found"])
async def test_our_publication_never_keeps_others_from_changing_rows_with_generated_columns(
    other: Guest, is_there: bool
) -> None:
    """The server would, since PostgreSQL 18, of rows that identify themselves as a whole."""
    other.execute(*TOTALS)
    if is_there:
        other.execute(
            "CREATE PUBLICATION headwater_shop FOR TABLE totals"
            " WITH (publish_via_partition_root = true)"
        )

    async with story(as_owner(other)) as told:
        found = await told.tell("UPDATE totals SET n = 2", "DELETE FROM totals")

    changes = [each for each in found if each.operation != "r"]
    assert [(each.operation, each.before or each.row) for each in changes] == [
        ("u", {"id": 1, "n": 1}),
        ("d", {"id": 1, "n": 2}),
    ]


async def test_a_table_whose_virtual_columns_would_keep_it_from_changes_is_not_published(
    other: Guest,
) -> None:
    if other.value("SELECT current_setting('server_version_num')::int") < 18_0000:
        pytest.skip("virtual columns came with PostgreSQL 18")
    virtual = TOTALS[0].replace("STORED", "VIRTUAL")
    other.execute(virtual, *TOTALS[1:])

    [finding] = await examine(settings_of(as_owner(other)), "shop")
    with pytest.raises(SourceRejected, match="virtual generated columns") as refused:
        async with story(as_owner(other)):
            pass
    other.execute("UPDATE totals SET n = 2", finding.hint)
    async with story(as_owner(other)) as told:
        found = await told.tell("UPDATE totals SET n = 3")

    assert finding.is_fatal and finding.hint in refused.value.hint
    assert [each.row for each in found if each.operation == "u"] == [{"id": 1, "n": 3}]


@pytest.mark.parametrize("origin", ["any", "none"])
async def test_replicated_changes_may_be_left_out(other: Guest, origin: str) -> None:
    other.execute(*TABLES)
    other.publish()

    async with story(other, origin=origin) as told:
        found = await told.tell(
            "SELECT pg_replication_origin_create('elsewhere');"
            "SELECT pg_replication_origin_session_setup('elsewhere');"
            "BEGIN; INSERT INTO orders VALUES (60, 'theirs'); COMMIT;"
            "SELECT pg_replication_origin_session_reset();"
            "SELECT pg_replication_origin_drop('elsewhere')",
            "INSERT INTO orders VALUES (61, 'ours')",
        )

    theirs = [60] if origin == "any" else []
    assert [each.row["id"] for each in found if each.operation == "c"] == [*theirs, 61]


async def test_replicated_changes_cannot_be_left_out_before_16(guest: Guest) -> None:
    if guest.value("SELECT current_setting('server_version_num')::int") >= 16_0000:
        pytest.skip("servers can since PostgreSQL 16")
    guest.execute(*TABLES)
    guest.publish()

    [finding] = await examine(settings_of(guest, origin="none"), "shop")
    with pytest.raises(SourceRejected, match="cannot leave out"):
        async with story(guest, origin="none"):
            pass

    assert finding.is_fatal and "origin: any" in finding.hint
