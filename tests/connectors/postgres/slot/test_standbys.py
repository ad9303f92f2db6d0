"""A commit that waits for the source as for a standby is not waited for by the source in turn."""

import asyncio

import pytest

from headwater.connectors.postgres.events import lookup
from headwater.connectors.postgres.slot.standbys import are_named
from headwater.core_log.foundation.errors import SourceRejected
from tests.connectors.postgres.events.test_lookup import LARGE, STREAMED_S, TEXT, unseen
from tests.connectors.postgres.source_session import Story, story
from tests.databases import Guest

PAGES = [
    "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
    "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
]
READERS = "SELECT count(*) FROM pg_replication_slots WHERE active"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said after a while is said as soon as something was not seen."""
    monkeypatch.setattr(lookup, "PATIENCE_LOOKS", 1)
    monkeypatch.setattr(lookup, "LONG_LOOKS", 1)


@pytest.mark.parametrize("standbys", ["*", 'ANY 1 (elsewhere, "Headwater shop")'])
@pytest.mark.parametrize("sees_all", [False, True], ids=["plain role", "superuser"])
async def test_a_source_that_a_commit_waits_for_ends_with_the_reason(
    guest: Guest, impatient: None, standbys: str, sees_all: bool
) -> None:
    guest.execute(*PAGES)
    guest.publish("pages")
    role = Guest(guest.owner, guest.owner if sees_all else guest.url)
    async with story(role) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        with unseen(guest, "UPDATE pages SET title = 'b'", standbys=standbys):
            found = await failure(told)
            while guest.value(READERS):  # the server may need a moment to see that we went
                continue

    assert isinstance(found, SourceRejected) and "a commit waits for us" in found.problem
    assert found.facts["synchronous_standby_names"] == standbys
    assert "FIRST 1 (standby_1, standby_2)" in found.hint


@pytest.mark.parametrize("sees_all", [False, True], ids=["plain role", "superuser"])
async def test_a_commit_that_waits_for_another_standby_is_waited_for(
    guest: Guest, impatient: None, sees_all: bool
) -> None:
    guest.execute(*PAGES)
    guest.publish("pages")
    role = Guest(guest.owner, guest.owner if sees_all else guest.url)
    async with story(role) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        with unseen(guest, "UPDATE pages SET title = 'b'"):
            await asyncio.sleep(STREAMED_S)
        [event] = await told.caught_up()

    assert (event.row["title"], event.row["body"]) == ("b", TEXT)


@pytest.mark.parametrize(
    ("names", "is_meant"),
    [
        ("", False),
        ("*", True),
        ("standby_1, standby_2", False),
        ('standby_1, "headwater shop"', True),
        ('"headwater shop 2"', False),
        ('2 (standby_1, "HEADWATER shop")', True),
        ("first 1(standby_1, *)", True),
        ('ANY 1 (standby_1, "say ""*""")', False),
    ],
)
def test_names_of_standbys_are_read_as_the_server_reads_them(names: str, is_meant: bool) -> None:
    assert are_named(names, "headwater shop") is is_meant


async def failure(told: Story) -> Exception:
    while True:
        found = await told.batches.get()
        if isinstance(found, Exception):
            return found
