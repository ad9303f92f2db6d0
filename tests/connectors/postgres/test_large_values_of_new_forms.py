"""A table that has been given another form since it was last asked for large values."""

from tests.connectors.postgres.stories import story
from tests.databases import Guest

LARGE = "repeat('0123456789', 1000)"
TEXT = "0123456789" * 1000


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
