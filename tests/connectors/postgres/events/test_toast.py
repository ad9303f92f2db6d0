"""No record of the stream ever holds a hole where an update left a large value as it was."""

from typing import Any

import pytest

from tests.connectors.postgres.source_session import short, story
from tests.databases import Guest

TABLE = """
CREATE TABLE pages (id int PRIMARY KEY, title text, body text, raw bytea, tags text[]);
ALTER TABLE pages ALTER body SET STORAGE EXTERNAL;
ALTER TABLE pages ALTER raw SET STORAGE EXTERNAL;
ALTER TABLE pages ALTER tags SET STORAGE EXTERNAL;
"""
LARGE = "repeat('0123456789', 1000)"
TEXT = "0123456789" * 1000
RESELECTED = "headwater.reselected"


@pytest.fixture
def pages(guest: Guest) -> Guest:
    guest.execute(*filter(str.strip, TABLE.split(";")))
    guest.publish("pages")
    return guest


async def test_an_untouched_value_is_read_anew_and_said_to_be(pages: Guest) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE}), (2, 'a', {LARGE})")

        [first, second] = await told.tell("UPDATE pages SET title = 'b'")

    assert first.row == {"id": 1, "title": "b", "body": TEXT, "raw": None, "tags": None}
    assert second.row["body"] == TEXT
    assert first.headers == second.headers == {RESELECTED: "body"}


async def test_values_of_every_kind_and_null_and_short_ones_stay_what_they_are(
    pages: Guest,
) -> None:
    async with story(pages) as told:
        await told.tell(
            f"INSERT INTO pages VALUES (1, 'a', 'short', {LARGE}::bytea, ARRAY[{LARGE}, 'x', NULL])"
        )

        [event] = await told.tell("UPDATE pages SET title = NULL")

    raw = TEXT.encode()
    assert event.row == {
        "id": 1, "title": None, "body": "short", "raw": raw, "tags": [TEXT, "x", None],
    }  # fmt: skip
    assert event.headers == {RESELECTED: "raw,tags"}


async def test_the_newest_state_is_whole_however_many_updates_wait(pages: Guest) -> None:
    async with story(pages) as told:
        events = await told.tell(
            f"INSERT INTO pages SELECT i, 'a', {LARGE} || i FROM generate_series(1, 700) i",
            "UPDATE pages SET title = 'b'",
            f"UPDATE pages SET body = {LARGE} || 'new' WHERE id <= 3",
            "UPDATE pages SET title = 'c'",
        )

    last = {event.row["id"]: event.row for event in events}
    assert {row["title"] for row in last.values()} == {"c"}
    assert [last[number]["body"] for number in (1, 3, 4, 700)] == [
        TEXT + "new", TEXT + "new", TEXT + "4", TEXT + "700",
    ]  # fmt: skip
    assert not [event for event in events if event.row["body"] is None]


async def test_an_update_of_a_row_that_is_gone_is_left_to_its_delete(pages: Guest) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        events = await told.tell(
            "BEGIN; UPDATE pages SET title = 'b'; DELETE FROM pages; COMMIT",
        )

    assert [(event.operation, event.row["id"]) for event in events] == [("d", 1)]


@pytest.mark.parametrize("end", ["TRUNCATE pages", "DROP TABLE pages"])
async def test_updates_of_rows_that_are_all_gone_are_left_out(pages: Guest, end: str) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE}), (2, 'a', {LARGE})")

        # In one transaction: else the source may read the updates while the rows are still there.
        events = await told.tell(f"BEGIN; UPDATE pages SET title = 'b'; {end}; COMMIT")

    assert [event.operation for event in events] == (["t"] if "TRUNCATE" in end else [])


async def test_a_changed_key_of_a_row_that_is_gone_takes_the_old_key_away(pages: Guest) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        events = await told.tell(
            "BEGIN; UPDATE pages SET id = 2; DELETE FROM pages; COMMIT",
        )

    assert [(event.operation, event.row["id"]) for event in events] == [("d", 1), ("d", 2)]
    assert not any(event.is_move for event in events)


async def test_a_changed_key_comes_with_the_large_value(pages: Guest) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        [gone, there] = await told.tell("UPDATE pages SET id = 2")

    assert (gone.operation, gone.row["id"], gone.row["body"]) == ("d", 1, None)
    assert (there.operation, there.row["id"], there.row["body"]) == ("c", 2, TEXT)
    assert gone.is_move and there.is_move


async def test_an_update_with_the_whole_row_before_it_needs_no_lookup(pages: Guest) -> None:
    pages.execute("ALTER TABLE pages REPLICA IDENTITY FULL")
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE})")

        [update] = await told.tell("UPDATE pages SET title = 'b'")
        [delete] = await told.tell("DELETE FROM pages")

    assert update.row["body"] == TEXT and not update.headers
    assert update.before is not None
    assert (update.before["title"], update.before["body"]) == ("a", TEXT)
    assert delete.row["body"] == TEXT


async def test_keys_of_all_sorts_find_their_rows(guest: Guest) -> None:
    guest.execute(
        "CREATE TYPE mood AS ENUM ('so, so', 'fine')",
        'CREATE TABLE "Odd ""Table" (a text, "B ä" mood, c char(5), d bit(3), e timestamptz,'
        ' n int, big text, PRIMARY KEY (e, a, "B ä", c, d))',
        'ALTER TABLE "Odd ""Table" ALTER big SET STORAGE EXTERNAL',
    )
    guest.publish('"Odd ""Table"')
    keys: list[Any] = [
        ("'q\"uo\\te''s, {a}'", "'so, so'", "'ab'", "'101'", "'infinity'"),
        ("''", "'fine'", "''", "'000'", "'2026-01-01 00:00:00.123456+05'"),
        ("E'\\t\\n\\\\N'", "'fine'", "'12345'", "'111'", "'0044-03-15 00:00:00 BC'"),
    ]
    async with story(guest) as told:
        for key in keys:
            await told.tell(f'INSERT INTO "Odd ""Table" VALUES ({", ".join(key)}, 1, {LARGE})')

        events = await told.tell('UPDATE "Odd ""Table" SET n = 2')

    assert [event.row["big"] for event in events] == [TEXT] * 3
    assert [event.row["n"] for event in events] == [2, 2, 2]


async def test_columns_may_be_called_like_anything_that_is_asked_for(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE pages (id int PRIMARY KEY, k0 int, k int, n int, t text, body text)",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 2, 3, 4, 'a', {LARGE})")

        [event] = await told.tell("UPDATE pages SET t = 'b'")

    assert event.row == {"id": 1, "k0": 2, "k": 3, "n": 4, "t": "b", "body": TEXT}


async def test_a_key_of_a_type_that_stands_in_no_search_path_finds_its_row(guest: Guest) -> None:
    if not guest.rows("SELECT 1 FROM pg_available_extensions WHERE name = 'ltree'"):
        pytest.skip("this server came without its extensions")
    guest.execute(
        "CREATE SCHEMA extensions",
        "CREATE EXTENSION ltree SCHEMA extensions",
        "CREATE DOMAIN place AS extensions.ltree",
        "CREATE TABLE pages (at extensions.ltree, of place, title text, body text,"
        " PRIMARY KEY (at, of))",
        "ALTER TABLE pages ALTER body SET STORAGE EXTERNAL",
    )
    guest.publish("pages")
    async with story(guest) as told:
        await told.tell(f"INSERT INTO pages VALUES ('a.b', 'c', 'a', {LARGE})")

        [event] = await told.tell("UPDATE pages SET title = 'b'")

    assert event.row == {"at": "a.b", "of": "c", "title": "b", "body": TEXT}


async def test_placeholders_stand_for_values_where_they_are_wanted(pages: Guest) -> None:
    async with story(pages, toast="placeholder") as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE}, {LARGE}::bytea)")

        [event] = await told.tell("UPDATE pages SET title = 'b'")

    assert event.row["body"] == "__debezium_unavailable_value"
    assert event.row["raw"] == b"__debezium_unavailable_value"
    assert not event.headers


async def test_a_column_dropped_since_then_is_null_and_the_others_whole(pages: Guest) -> None:
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE}, {LARGE}::bytea)")

        events = await told.tell(
            "UPDATE pages SET title = 'b'",
            "ALTER TABLE pages DROP raw",
            "ALTER TABLE pages RENAME TO leaves",
            "ALTER TABLE leaves RENAME TO pages",
        )

    assert short(events)[0][1]["body"] == TEXT


async def test_a_value_of_a_dropped_column_is_not_taken_from_another(pages: Guest) -> None:
    """There are as many columns as before, and yet none has only been renamed."""
    async with story(pages) as told:
        await told.tell(f"INSERT INTO pages VALUES (1, 'a', {LARGE}, {LARGE}::bytea)")

        events = await told.tell(  # at once, so that the source sees them only afterwards
            "UPDATE pages SET title = 'b';"
            "ALTER TABLE pages DROP body;"
            "ALTER TABLE pages ADD notes text DEFAULT 'other'"
        )

    [[_, row]] = short(events)
    assert row == {"id": 1, "title": "b", "body": None, "raw": TEXT.encode(), "tags": None}
