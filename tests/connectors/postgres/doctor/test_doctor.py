"""Whatever stands in a PostgreSQL source's way is found, and the SQL that is printed cures it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.foundation.errors import Diagnostic
from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres, temporary_directory
from tests.databases import Guest

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, note text)"
PAGE = Path(__file__).parents[4] / "docs/postgres-role.md"
STATEMENT = r"(?:ALTER|GRANT|CREATE|SELECT pg_|ROLLBACK)[^;]*;"


def version_of(address: str) -> int:
    with psycopg.connect(address) as connection:
        return connection.info.server_version // 10_000


def settings_of(url: str, **choices: Any) -> PostgresSettings:
    return PostgresSettings(url=SecretStr(url), **{"tables": ("public.*",), **choices})


async def findings(guest: Guest, **choices: Any) -> list[Diagnostic]:
    return await examine(settings_of(guest.url, **choices), "shop")


async def cured(guest: Guest, problem: str, **choices: Any) -> Diagnostic:
    """The one finding that says so, after its SQL has been run and it has been looked for again."""
    found = [each for each in await findings(guest, **choices) if problem in each.problem]
    assert len(found) == 1, (problem, found)
    statements = re.findall(STATEMENT, found[0].hint)
    assert statements, f"a cure has SQL to be run: {found[0].hint}"
    guest.execute(*statements)
    left = [each for each in await findings(guest, **choices) if problem in each.problem]
    assert not left, (statements, left)
    return found[0]


async def test_a_database_prepared_as_the_page_says_has_no_findings(
    guest: Guest,
) -> None:
    guest.execute(ORDERS)
    guest.publish()

    assert await findings(guest) == []


async def test_a_server_that_does_not_answer_is_said(guest: Guest) -> None:
    address = re.sub(r":\d+/", ":1/", guest.url)

    [found] = await examine(settings_of(address), "shop")

    assert "cannot be reached" in found.problem and found.is_fatal


async def test_a_role_that_may_not_replicate(guest: Guest) -> None:
    guest.execute(ORDERS, "CREATE ROLE plain LOGIN", "GRANT SELECT ON orders TO plain")
    guest.publish()
    plain = Guest(guest.owner, guest.url.replace("headwater_guest@", "plain@"))

    found = await cured(plain, "may not replicate")

    assert found.is_fatal and 'ALTER ROLE "plain" REPLICATION;' in found.hint
    guest.execute("DROP OWNED BY plain", "DROP ROLE plain")


async def test_a_schema_that_the_role_may_not_look_into_and_a_table_that_it_may_not_read(
    guest: Guest,
) -> None:
    guest.execute(
        'CREATE SCHEMA "Odd ""one"""',
        'CREATE TABLE "Odd ""one"""."a;b" (id int PRIMARY KEY)',
        'REVOKE ALL ON SCHEMA "Odd ""one""" FROM headwater_guest',
        'REVOKE ALL ON "Odd ""one"""."a;b" FROM headwater_guest',
    )
    guest.publish()
    tables = ("Odd*.*",)

    told = {each.problem: each.hint for each in await findings(guest, tables=tables)}
    guest.execute(*told.values())

    assert list(told.values()) == [
        'GRANT USAGE ON SCHEMA "Odd ""one""" TO "headwater_guest";',
        'GRANT SELECT ON TABLE "Odd ""one"""."a;b" TO "headwater_guest";',
    ]
    assert await findings(guest, tables=tables) == []


async def test_rows_that_a_policy_hides(guest: Guest) -> None:
    guest.execute(ORDERS, "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")
    guest.publish()

    found = await cured(guest, "row security hides rows")

    assert found.is_fatal
    guest.execute("ALTER ROLE headwater_guest NOBYPASSRLS")


async def test_hidden_rows_are_an_error_to_whoever_reads_them_all_the_same(guest: Guest) -> None:
    guest.execute(ORDERS, "ALTER TABLE orders ENABLE ROW LEVEL SECURITY")

    async with await connect(settings_of(guest.url)) as connection:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await connection.execute("SELECT * FROM orders")


async def test_tables_that_the_server_streams_no_changes_of(guest: Guest) -> None:
    guest.execute(ORDERS, "CREATE UNLOGGED TABLE fast (id int PRIMARY KEY)")
    guest.publish()

    found = await cured(guest, "unlogged tables into its log: public.fast match `tables`")

    assert not found.is_fatal and found.left_out == ("public.fast",)


async def test_partitions_that_the_server_streams_no_changes_of(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE UNLOGGED TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (1)",
        "CREATE TABLE day_2 PARTITION OF days FOR VALUES FROM (1) TO (2)",
    )
    guest.publish()

    found = await cured(guest, "those of public.day_1, partitions of public.days, are missed")

    assert not found.is_fatal and "snapshot start" in found.hint


FOREIGN = (
    "CREATE FOREIGN DATA WRAPPER nothing",
    "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
)


async def test_foreign_tables_and_partitions(guest: Guest) -> None:
    guest.execute(
        *FOREIGN,
        "CREATE TABLE days (day int) PARTITION BY RANGE (day)",
        "ALTER TABLE days REPLICA IDENTITY FULL",
        "CREATE FOREIGN TABLE far PARTITION OF days FOR VALUES FROM (0) TO (1) SERVER elsewhere",
        "CREATE FOREIGN TABLE away (id int) SERVER elsewhere",
    )
    guest.publish("days")

    told = await findings(guest, tables=("public.*",), keys={"public.days": ["day"]})

    [found] = [each for each in told if "foreign" in each.problem]
    assert "public.away, public.far are left out" in found.problem and not found.is_fatal
    assert '"!schema.table"' in found.hint


NAMED = {
    "public.seen": "a view",
    "public.kept": "a materialized view",
    "public.numbers": "a sequence",
    "public.passing": "a temporary table",
    "public.day_1": "a partition: its rows come as those of public.days",
    "public.ordrs": "public.ordrs does not exist",
    "pg_catalog.pg_class": "a table of the system",
}


async def test_names_of_the_file_that_are_no_tables_are_said_and_globs_mean_tables_only(
    guest: Guest,
) -> None:
    guest.execute(
        ORDERS,
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM orders",
        "CREATE SEQUENCE numbers",
        "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (1)",
    )
    guest.publish()

    with psycopg.connect(guest.owner, autocommit=True) as session:
        session.execute("CREATE TEMPORARY TABLE passing (id int PRIMARY KEY)")
        [found] = await findings(guest, tables=("public.orders", *NAMED))
        nothing = await findings(guest, tables=("public.*", "!public.seen"))

    assert nothing == [] and not found.is_fatal
    assert all(word in found.problem for word in NAMED.values())
    assert all(name in found.problem for name in NAMED)


async def test_patterns_that_match_no_table_are_found(guest: Guest) -> None:
    assert [each.problem for each in await findings(guest)] == ["no table matches `tables`"]


async def test_a_publication_that_is_missing_or_lacks_a_table(guest: Guest) -> None:
    guest.execute(ORDERS)

    missing = await cured(guest, "publication headwater_shop does not exist")
    guest.execute("CREATE TABLE items (id int PRIMARY KEY)")
    lacking = await cured(guest, "public.items is left out: publication headwater_shop does not")

    assert missing.is_fatal and lacking.is_fatal


async def test_a_publication_that_leaves_out_operations_or_names_partitions(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE days (day int PRIMARY KEY) PARTITION BY RANGE (day)",
        "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (1)",
        "CREATE PUBLICATION headwater_shop FOR TABLE days WITH (publish = 'insert')",
    )

    await cured(guest, "does not publish public.days")

    assert await findings(guest) == []


async def test_a_publication_that_leaves_out_rows(guest: Guest) -> None:
    if version_of(guest.owner) < 15:
        pytest.skip("row filters came with PostgreSQL 15")
    guest.execute(ORDERS, "CREATE PUBLICATION headwater_shop FOR TABLE orders WHERE (id > 5)")
    guest.execute("ALTER PUBLICATION headwater_shop SET (publish_via_partition_root = true)")

    found = await cured(guest, "leaves out rows or columns of public.orders")

    assert not found.is_fatal


NOT_PUBLISHED = "publication headwater_shop does not publish it, and the file says that it is given"
GIVEN = {
    "FOR TABLE orders": ["shop.items is left out: " + NOT_PUBLISHED],
    "FOR TABLES IN SCHEMA shop": ["public.orders is left out: " + NOT_PUBLISHED],
    "FOR TABLE orders WHERE (id > 5), TABLES IN SCHEMA shop": [
        "publication headwater_shop leaves out rows or columns of public.orders (only rows where"
        " (id > 5)): the rest is not captured"
    ],
    "FOR TABLE shop.items WHERE (id > 5), orders, TABLES IN SCHEMA shop": [],
    "FOR TABLE shop.items, orders (id, note) WHERE (note IS NULL)": [
        "publication headwater_shop leaves out rows or columns of public.orders (only rows where"
        " (note IS NULL) and columns id, note): the rest is not captured"
    ],
    "FOR ALL TABLES": [],
}


@pytest.mark.parametrize("form", GIVEN)
async def test_a_given_publication_is_examined_in_each_of_its_forms(
    guest: Guest, form: str
) -> None:
    if version_of(guest.owner) < 15 and not re.fullmatch("FOR TABLE orders|FOR ALL TABLES", form):
        pytest.skip("schemas, row filters and lists of columns came with PostgreSQL 15")
    guest.execute(
        "CREATE TABLE orders (id int, note text, more text)",
        "ALTER TABLE orders REPLICA IDENTITY FULL",
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.items (id int PRIMARY KEY)",
        f"CREATE PUBLICATION headwater_shop {form} WITH (publish_via_partition_root = true,"
        " publish = 'insert')",
        "ALTER PUBLICATION headwater_shop SET (publish = 'insert, update, delete, truncate')",
    )
    given: dict[str, Any] = {
        "publication": {"create": "never"},
        "tables": ("public.*", "shop.*"),
        "keys": {"public.orders": ["id"]},
    }

    found = await findings(guest, **given)
    for each in found:
        guest.execute(*re.findall(STATEMENT, each.hint))

    assert [each.problem for each in found] == GIVEN[form]
    assert await findings(guest, **given) == []


async def test_a_publication_that_the_role_may_make_itself_is_no_finding(guest: Guest) -> None:
    guest.execute(ORDERS)

    assert await examine(settings_of(guest.owner), "shop") == []
    given = settings_of(guest.owner, publication={"create": "never"})
    assert [each.problem for each in await examine(given, "shop")] == [
        "publication headwater_shop does not exist, and the file says that it is given"
    ]


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (id int)",
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING",
        "CREATE TABLE whole (id int, x int) PARTITION BY RANGE (id);"
        "CREATE TABLE t PARTITION OF whole FOR VALUES FROM (0) TO (1);"
        "ALTER TABLE whole REPLICA IDENTITY FULL",
    ],
    ids=["no key", "a key that is checked late", "nothing", "a partition"],
)
async def test_tables_that_could_not_be_changed_any_more_once_published(
    guest: Guest, table: str
) -> None:
    guest.execute(table, "INSERT INTO t VALUES (0)")
    guest.publish()
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        guest.execute("DELETE FROM t")

    found = await cured(guest, "refuses UPDATE and DELETE")
    guest.execute("DELETE FROM t")

    assert found.is_fatal and "public.t" in found.problem


async def test_a_key_that_is_not_sent_with_a_delete(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL UNIQUE)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX t_code_key",
    )
    guest.publish()

    assert (await cured(guest, "public.t is left out: changed or deleted rows are sent")).is_fatal


async def test_a_table_that_has_no_key_can_only_be_appended(guest: Guest) -> None:
    guest.execute("CREATE TABLE t (id int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    guest.publish()

    [found] = await findings(guest)
    keyed = await findings(guest, keys={"public.t": ["id"]})

    assert "public.t has no key" in found.problem and not found.is_fatal
    assert keyed == []


async def test_a_table_with_more_rows_than_may_be_read_again(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t SELECT generate_series(1, 50)",
        "ANALYZE t",
    )
    guest.publish()

    [found] = await findings(guest, snapshot={"reread_max_rows": 49})
    enough = await findings(guest, snapshot={"reread_max_rows": 50})

    assert "public.t: more rows than `snapshot.reread_max_rows` (49)" in found.problem
    assert not found.is_fatal
    assert enough == []


async def test_a_slot_of_another_kind(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    guest.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'test_decoding')")

    assert (await cured(guest, "slot headwater_shop is of another kind")).is_fatal


async def test_somebody_else_on_the_slot(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    guest.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
    other = await connect(settings_of(guest.url), replication=True, name="somebody")
    other.pgconn.send_query(
        b"START_REPLICATION SLOT headwater_shop LOGICAL 0/0"
        b" (proto_version '1', publication_names 'headwater_shop')"
    )
    await until_streaming(guest)

    found = await cured(guest, "slot headwater_shop has another reader")

    assert found.is_fatal and "somebody" in found.problem
    await other.close()
    guest.execute("SELECT pg_drop_replication_slot('headwater_shop')")


async def until_streaming(guest: Guest) -> None:
    question = "SELECT active FROM pg_replication_slots WHERE slot_name = 'headwater_shop'"
    while not guest.value(question):
        continue


async def test_our_own_reader_on_the_slot_is_no_finding(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    guest.execute("SELECT pg_create_logical_replication_slot('headwater_shop', 'pgoutput')")
    ours = await connect(settings_of(guest.url), replication=True, name="headwater shop")
    ours.pgconn.send_query(
        b"START_REPLICATION SLOT headwater_shop LOGICAL 0/0"
        b" (proto_version '1', publication_names 'headwater_shop')"
    )
    await until_streaming(guest)

    found = await findings(guest)

    assert found == []
    await ours.close()


async def test_commits_that_would_wait_for_us(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    set_names = "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby_1, {})'"
    guest.execute(set_names.format('"headwater shop"'), "SELECT pg_reload_conf()")
    try:
        found = await shown(guest, "names our reader")
        guest.execute(set_names.format("standby_2"), *re.findall(STATEMENT, found.hint))
        while await findings(guest):
            pass
    finally:
        guest.execute("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

    assert not found.is_fatal and '"headwater shop"' in found.hint


async def shown(guest: Guest, problem: str) -> Diagnostic:
    """The only finding, once the server has read its settings again."""
    while not (found := await findings(guest)):
        continue
    [only] = found
    assert problem in only.problem
    return only


async def test_slots_that_nobody_reads_and_one_that_keeps_too_much(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    for name in ("headwater_shop", "headwater_old"):
        guest.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    guest.execute("INSERT INTO orders SELECT n, 'x' FROM generate_series(1, 20000) n")

    orphan = await cured(guest, "slot headwater_old has no reader")
    large = await cured(guest, "more than `max_retained_wal`", slot={"max_retained_wal": "1MiB"})

    assert not orphan.is_fatal and not large.is_fatal


async def test_a_transaction_that_the_slot_would_wait_for(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    with psycopg.connect(guest.owner) as writer:
        writer.execute("INSERT INTO orders VALUES (1)")
        writer.execute("PREPARE TRANSACTION 'left behind'")

    found = await examine(settings_of(guest.url), "shop", waits_s_max=-1)
    guest.execute(*(each.hint for each in found))

    assert [each.hint for each in found] == ["ROLLBACK PREPARED 'left behind';"]
    assert await examine(settings_of(guest.url), "shop", waits_s_max=-1) == []


async def test_several_hosts_of_which_none_is_said_to_be_meant(guest: Guest) -> None:
    guest.execute(ORDERS)
    guest.publish()
    host = guest.url.split("@")[1].split("/")[0]
    several = guest.url.replace(host, f"{host},{host}")

    [found] = await examine(settings_of(several), "shop")
    primary = await examine(settings_of(f"{several}?target_session_attrs=primary"), "shop")

    assert "does not say that the primary is meant" in found.problem
    assert primary == []


@pytest.fixture(scope="module")
def narrow() -> Iterator[EmbeddedPostgres]:
    """A server that is set up for anything but this."""
    settings = {"wal_level": "replica", "max_replication_slots": "1", "max_wal_senders": "1"}
    with embedded_postgres(settings=settings) as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute(ORDERS)
            connection.execute("SELECT pg_create_physical_replication_slot('copy', true)")
        yield server


@pytest.mark.integration
async def test_limits_of_the_server(narrow: EmbeddedPostgres) -> None:
    settings = settings_of(narrow.address, slot={"failover": "always"})
    async with await connect(settings, replication=True):
        found = await examine(settings, "shop")
    with psycopg.connect(narrow.address, autocommit=True) as connection:
        for each in found:
            for statement in re.findall(STATEMENT, each.hint):
                connection.execute(statement.encode())
    narrow.stop()
    narrow.start()

    copies = "the server cannot keep copies of slots on its standbys"
    assert [each.problem.split(" (")[0] for each in found if each.problem != copies] == [
        "wal_level is replica",
        "all 1 connections for replication are taken",
        "all 1 replication slots of the server are taken",
    ]
    assert (copies in [each.problem for each in found]) is (version_of(narrow.address) < 17)
    assert await examine(settings_of(narrow.address), "shop") == []


@pytest.fixture(scope="module")
def strict() -> Iterator[EmbeddedPostgres]:
    """A server that keeps little for its slots."""
    with embedded_postgres(settings={"max_slot_wal_keep_size": "1MB"}) as server:
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute(ORDERS)
        yield server


@pytest.mark.integration
async def test_a_slot_that_the_server_has_given_up(strict: EmbeddedPostgres) -> None:
    with psycopg.connect(strict.address, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('headwater_shop','pgoutput')")
        for _ in range(3):
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("INSERT INTO orders SELECT coalesce(max(id), 0) + 1 FROM orders")
        connection.execute("CHECKPOINT")

    [found] = await examine(settings_of(strict.address), "shop")

    assert "has invalidated slot headwater_shop" in found.problem and found.is_fatal
    assert "position_mismatch: resnapshot" in found.hint


@pytest.mark.integration
async def test_a_standby(strict: EmbeddedPostgres) -> None:
    with temporary_directory("standby") as directory:
        standby = strict.copy(directory)
        standby.start()
        found = await examine(settings_of(standby.address), "shop")
        standby.stop("immediate")

    if version_of(strict.address) < 16:
        assert "can be streamed since PostgreSQL 16" in found[0].problem and found[0].is_fatal
    else:
        assert "a new slot there waits" in found[0].problem and not found[0].is_fatal


async def test_the_statements_of_the_page_are_enough_and_can_be_taken_back(guest: Guest) -> None:
    database = guest.value("SELECT current_database()")
    prepare, take_down = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    guest.execute(ORDERS, "CREATE TABLE customers (id int PRIMARY KEY)")

    guest.execute(prepare.replace("DATABASE shop", f'DATABASE "{database}"'))
    role = guest.url.replace("headwater_guest@", "headwater_source@")
    found = await examine(settings_of(role), "shop")
    guest.execute(take_down)

    assert found == []
