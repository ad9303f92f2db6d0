"""A transaction is streamed before others see it; nothing is asked about it until they do."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.connectors.postgres.source_session import story
from tests.databases import Guest

LARGE = "repeat('0123456789', 1000)"
TEXT = "0123456789" * 1000
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
LET_GO = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
STREAMED_S = 0.5
"""Long enough for the stream to bring what waits; where it were not, the test would see less."""


@contextmanager
def unseen(guest: Guest, statement: str, *, standbys: str = "nobody") -> Iterator[None]:
    """Its commit is on disk, and waits until this ends for a standby that is not there."""
    guest.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
    guest.execute("SELECT pg_reload_conf()")
    while not has_to_wait(guest):
        continue
    writing = threading.Thread(target=guest.execute, args=(statement,))
    try:
        writing.start()
        while not guest.value(WAITING):
            assert writing.is_alive(), "it did not wait"
        yield
    finally:
        guest.execute("ALTER SYSTEM RESET synchronous_standby_names")
        guest.execute("SELECT pg_reload_conf()")
        writing.join()


def has_to_wait(guest: Guest) -> bool:
    """Whether commits wait by now, as the server's processes read its settings one by one. What
    waits is let go again."""
    probe = "SELECT pg_logical_emit_message(true, 'probe', '')"
    probing, has_waited = threading.Thread(target=guest.execute, args=(probe,)), False
    probing.start()
    while probing.is_alive():
        if guest.value(WAITING):
            has_waited = True
            guest.execute(LET_GO)
    return has_waited


async def test_a_row_whose_key_was_changed_keeps_its_large_value(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        with unseen(guest, "UPDATE pages SET id = 2"):
            await asyncio.sleep(STREAMED_S)
        [gone, there] = await told.caught_up()

    assert (gone.operation, gone.row["id"]) == ("d", 1)
    assert (there.operation, there.row["id"], there.row["body"]) == ("c", 2, TEXT)


async def test_a_large_value_is_the_one_that_the_same_transaction_wrote(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    both = f"UPDATE pages SET body = {LARGE} || 'new'; UPDATE pages SET title = 'b'"
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        with unseen(guest, both):
            await asyncio.sleep(STREAMED_S)
        events = await told.caught_up()

    assert [(event.row["title"], event.row["body"]) for event in events] == [
        ("a", TEXT + "new"),
        ("b", TEXT + "new"),
    ]


async def test_a_column_of_a_type_that_the_same_transaction_made_is_captured(
    guest: Guest,
) -> None:
    guest.execute("CREATE TABLE pages (id int PRIMARY KEY)")
    guest.publish("pages")
    made = (
        "CREATE TYPE mood AS ENUM ('fine', 'so so'); ALTER TABLE pages ADD mood mood;"
        "INSERT INTO pages VALUES (1, 'fine')"
    )
    async with story(guest) as told:
        with unseen(guest, made):
            await asyncio.sleep(STREAMED_S)
        [event] = await told.caught_up()

    assert event.row == {"id": 1, "mood": "fine"}
