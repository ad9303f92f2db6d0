"""After a failover the stream goes on where the slot came along, and else says that it cannot."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.slot.resume_check import check_resume
from headwater.connectors.postgres.source import PostgresSource
from headwater.core_log.foundation.errors import PositionLost, SourceUnavailable
from scripts.embedded_postgres import EmbeddedPostgres, embedded_postgres, temporary_directory
from tests.connectors.postgres.source_session import events_of, source_context

pytestmark = pytest.mark.integration

SLOT = "headwater_shop"
FOLLOWING = {
    "hot_standby": "on",
    "hot_standby_feedback": "on",
    "primary_slot_name": "copy",
}
"""What a standby needs for copies of slots; here they are made when a test asks for it."""


def execute(address: str, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last one."""
    found: list[tuple[Any, ...]] = []
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
            found = cursor.fetchall() if cursor.description else []
    return found


@contextmanager
def primary_and_copy(version: int, standby: dict[str, str]) -> Iterator[tuple[Any, Any]]:
    with embedded_postgres(version=version) as primary, temporary_directory("copy") as directory:
        execute(primary.address, "CREATE TABLE orders (id int PRIMARY KEY)",
                "SELECT pg_create_physical_replication_slot('copy', true)")  # fmt: skip
        copy = primary.copy(directory, settings=standby, database="postgres")
        copy.start()
        try:
            yield primary, copy
        finally:
            copy.stop("immediate")


def settings_of(*servers: EmbeddedPostgres) -> PostgresSettings:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in servers)
    url = f"postgresql://headwater@{hosts}/postgres?target_session_attrs=primary"
    return PostgresSettings(url=SecretStr(url), tables=("public.*",))


async def positioned(settings: PostgresSettings, *, has_failover: bool) -> dict[str, str]:
    """Where a source stands that has just made its slot."""
    line = await connect(settings, replication=True)
    async with line:
        made = await replication_slot.create(line, SLOT, has_failover=has_failover, exports=False)
        server = (await check_resume(line, settings, SLOT, {})).server
    return {"stream": lsn_text(made.consistent_lsn), "server": server.part}


async def test_a_slot_of_which_the_standby_has_a_copy_is_gone_on_with_on_a_new_timeline() -> None:
    with primary_and_copy(18, FOLLOWING) as (primary, copy):
        settings = settings_of(primary, copy)
        position = await positioned(
            settings, has_failover=replication_slot.wants_failover(settings, 18_0004)
        )
        position["stream"] = synchronised(primary, copy)
        alone = settings.model_copy(update={"url": SecretStr(copy.address)})
        async with await connect(alone, replication=True) as line:
            with pytest.raises(SourceUnavailable, match="the server is a standby"):
                await check_resume(line, alone, SLOT, position)
        primary.kill()
        copy.promote()

        async with await connect(settings, replication=True) as line:
            standing = await check_resume(line, settings, SLOT, position)
            with pytest.raises(PositionLost, match="left timeline 1 at"):
                await check_resume(line, settings, SLOT, position | {"stream": "7FFF/0"})

        assert lsn_text(standing.start or 0) == position["stream"]
        assert standing.server.part.endswith("/2")


def moved_on(primary: EmbeddedPostgres) -> str:
    """As a stream does that is confirmed; a slot has no copy before."""
    execute(primary.address, "INSERT INTO orders SELECT count(*) FROM orders",
            "SELECT pg_log_standby_snapshot()")  # fmt: skip
    [[lsn]] = execute(
        primary.address,
        f"SELECT end_lsn::text FROM pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())",
    )
    return str(lsn)


def synchronised(primary: EmbeddedPostgres, copy: EmbeddedPostgres) -> str:
    """Where the slot stands of which the copy has one for good."""
    question = (
        f"SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = '{SLOT}'"
    )
    while True:
        position = moved_on(primary)
        replayed(primary, copy)
        with suppress(psycopg.errors.ObjectNotInPrerequisiteState):  # the slot has gone on since
            if execute(copy.address, "SELECT pg_sync_replication_slots()", question) == [(True,)]:
                return position


def replayed(primary: EmbeddedPostgres, copy: EmbeddedPostgres) -> None:
    """The copy shows what the primary has by now."""
    [[lsn]] = execute(primary.address, "SELECT pg_current_wal_lsn()::text")
    question = f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'"
    while execute(copy.address, question) != [(True,)]:
        pass


async def test_a_position_without_a_kept_copy_is_lost_and_said_to_be() -> None:
    with primary_and_copy(15, {}) as (primary, copy):
        settings = settings_of(primary, copy)
        position = await positioned(settings, has_failover=False)
        execute(primary.address, "INSERT INTO orders VALUES (1)")
        primary.kill()
        copy.promote()

        async with await connect(settings, replication=True) as line:
            with pytest.raises(PositionLost, match="the replication slot is gone"):
                await check_resume(line, settings, SLOT, position)


async def test_a_standby_is_read_as_its_primary_is() -> None:
    publish = "CREATE PUBLICATION headwater_shop FOR TABLE orders"
    with primary_and_copy(18, FOLLOWING) as (primary, copy):
        execute(primary.address, f"{publish} WITH (publish_via_partition_root = true)",
                "INSERT INTO orders VALUES (1)")  # fmt: skip
        replayed(primary, copy)
        found = list[tuple[str, int]]()
        making = asyncio.ensure_future(read_three(copy, found))
        while not making.done():  # a slot there is made when the primary says what runs
            await asyncio.to_thread(
                execute,
                primary.address,
                "SELECT pg_log_standby_snapshot()",
                "INSERT INTO orders SELECT 1 + count(*) FROM orders",
            )
        await making

    assert [number for _, number in found] == list(range(1, len(found) + 1))
    assert {letter for letter, _ in found} == {"r", "c"}


async def read_three(server: EmbeddedPostgres, found: list[tuple[str, int]]) -> None:
    """Rows that were there, and three more that came."""
    settings = PostgresSettings(url=SecretStr(server.address), tables=("public.*",))
    source = PostgresSource(settings, source_context())
    async with aclosing(source.changes({})) as batches:
        async for batch in batches:
            events = [event for changes in batch.tables for event in events_of(changes)]
            found += [(event.operation, event.row["id"]) for event in events]
            if [letter for letter, _ in found].count("c") >= 3:
                return
