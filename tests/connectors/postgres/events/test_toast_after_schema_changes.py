"""A table that has been given another form since it was last asked for large values."""

from collections.abc import Mapping
from contextlib import aclosing
from operator import itemgetter

import pytest

from headwater.core_log.foundation.errors import SourceRejected
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    differing,
    in_table,
    source_of,
    until_equal,
)
from tests.connectors.postgres.source_session import Event, events_of, story
from tests.databases import Guest

LARGE = "repeat('0123456789', 1000)"
TEXT = "0123456789" * 1000
PAGES = (
    "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
    "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
)


async def test_a_large_value_of_a_column_added_since_then_is_whole(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")
        await told.tell("UPDATE pages SET title = 'b'")  # the table is asked, its form remembered
        await told.tell(
            "ALTER TABLE pages ADD notes text",
            "ALTER TABLE pages ALTER notes SET STORAGE EXTERNAL",
            f"UPDATE pages SET body = 'short', notes = {LARGE}",
        )

        [event] = await told.tell("UPDATE pages SET title = 'c'")

    assert event.row == {"id": 1, "title": "c", "body": "short", "notes": TEXT}


async def test_a_large_value_is_that_of_its_own_column_once_another_was_dropped(
    guest: Guest,
) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, old int, title text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 1, 'a', {LARGE})")
        await told.tell("UPDATE pages SET title = 'b'")
        await told.tell(
            "ALTER TABLE pages DROP old",
            "ALTER TABLE pages ADD notes text",
            "ALTER TABLE pages ALTER notes SET STORAGE EXTERNAL",
            f"UPDATE pages SET body = 'short', notes = {LARGE}",
        )

        [event] = await told.tell("UPDATE pages SET title = 'c'")

    assert event.row == {"id": 1, "title": "c", "body": "short", "notes": TEXT}


async def test_rows_are_found_by_a_key_that_has_another_name_by_now(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE pages (site int, number int, old int, body text, PRIMARY KEY (site, number))",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 2, 3, {LARGE}), (1, 3, 3, 'short')")

        events = await told.tell(
            "UPDATE pages SET old = 4",
            "ALTER TABLE pages DROP old",
            "ALTER TABLE pages ADD title text",
            "ALTER TABLE pages RENAME number TO page",
        )

    assert [each.row["body"] for each in events] == [TEXT, "short"]


@pytest.mark.parametrize(
    "changes",
    [
        ["ALTER TABLE pages ALTER id TYPE text"],
        ["ALTER TABLE pages DROP id", "ALTER TABLE pages ADD number uuid DEFAULT gen_random_uuid()"
         " PRIMARY KEY"],
    ],
    ids=["of another type", "another one"],
)  # fmt: skip
async def test_a_key_that_has_become_another_one_is_said_and_cured(
    guest: Guest, changes: list[str]
) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, title text, body text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
        f"INSERT INTO pages VALUES (1, 'a', {LARGE})",
    )
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("UPDATE pages SET title = 'b'", *changes)

    with pytest.raises(SourceRejected, match="another form") as refused:
        await until_equal(folded, guest)
    await until_equal(folded, guest, tables=["public.others"])
    await until_equal(folded, guest)

    assert "take the table out of `tables` for one run" in refused.value.hint
    assert not differing(folded, guest, "pages")


@pytest.mark.parametrize(
    "changes",
    [
        ["ALTER TABLE pages DROP body", "ALTER TABLE pages ADD other text DEFAULT 'wrong'"],
        ["ALTER TABLE pages DROP body", "ALTER TABLE pages ADD other int DEFAULT 7"],
        ["ALTER TABLE pages DROP body"],
    ],
)
@pytest.mark.parametrize("is_running", [True, False])
async def test_a_value_of_a_column_that_is_gone_is_never_that_of_another(
    guest: Guest, changes: list[str], is_running: bool
) -> None:
    guest.execute(*PAGES, f"INSERT INTO pages VALUES (1, 'a', {LARGE})")
    guest.publish("pages")
    behind = "; ".join(["BEGIN", "UPDATE pages SET title = 'b'", *changes, "COMMIT"])
    async with story(guest) as told:
        events = await told.tell(behind) if is_running else []
    if not is_running:
        guest.execute(behind)
        events = await told_after(guest, told.positions)

    [event] = [each for each in events if "body" in each.row]
    assert event.row == {"id": 1, "title": "b", "body": None}
    assert event.headers == {"headwater.unavailable": "body"}


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_column_that_takes_the_name_of_one_that_is_gone_is_another(
    guest: Guest, is_running: bool
) -> None:
    guest.execute(*PAGES, f"INSERT INTO pages VALUES (1, 'a', {LARGE})")
    guest.publish("pages")
    behind = (
        "BEGIN; UPDATE pages SET title = 'b'; ALTER TABLE pages DROP body;"
        " ALTER TABLE pages ADD body text DEFAULT 'wrong'; COMMIT"
    )
    async with story(guest) as told:
        events = await told.tell(behind) if is_running else []
    if not is_running:
        guest.execute(behind)
        events = await told_after(guest, told.positions)

    event = events[0]
    assert event.row == {"id": 1, "title": "b", "body": None}
    assert event.headers == {"headwater.unavailable": "body"}


async def test_a_renamed_column_of_a_table_that_lost_another_is_found(guest: Guest) -> None:
    guest.execute(*PAGES, f"INSERT INTO pages VALUES (1, 'a', {LARGE})")
    guest.publish("pages")
    async with story(guest) as told:
        [event] = await told.tell(
            "BEGIN; UPDATE pages SET title = 'b'; ALTER TABLE pages DROP title;"
            " ALTER TABLE pages RENAME body TO content; COMMIT"
        )

    assert event.row == {"id": 1, "title": "b", "body": TEXT}
    assert event.headers == {"headwater.reselected": "body"}


async def told_after(guest: Guest, positions: Mapping[str, str]) -> list[Event]:
    source, found = source_of(guest, until_end=True), list[Event]()
    async with aclosing(source.changes(dict(positions))) as batches:
        async for batch in batches:
            found += [event for changes in batch.tables for event in events_of(changes)]
    return found


@pytest.mark.parametrize(
    "changes",
    [
        ["ALTER TABLE pages DROP body"],
        ["ALTER TABLE pages DROP body", "ALTER TABLE pages ADD body text DEFAULT 'new'"],
        ["ALTER TABLE pages DROP body", "ALTER TABLE pages ADD notes text"],
        ["ALTER TABLE pages DROP body", "UPDATE pages SET title = 'c' WHERE id = 2"],
    ],
    ids=["dropped", "added again", "another added", "changed after"],
)
async def test_a_table_that_lost_a_large_value_equals_its_source_once_caught_up(
    guest: Guest, changes: list[str]
) -> None:
    guest.execute(*PAGES, f"INSERT INTO pages VALUES (1, 'a', {LARGE}), (2, 'a', {LARGE})")
    guest.publish("pages")
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("UPDATE pages SET title = 'b' WHERE id = 1", *changes)

    await until_equal(folded, guest)

    [names] = {tuple(row) for row in map(dict.keys, in_table(guest, "pages"))}
    there = [{name: row.get(name) for name in names} for row in folded.rows("pages")]
    key = itemgetter("id")
    assert sorted(there, key=key) == sorted(in_table(guest, "pages"), key=key)
