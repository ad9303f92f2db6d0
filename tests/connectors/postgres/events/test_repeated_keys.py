"""Tables in which two rows may have one key for a moment: the newest record of a key is its row."""

import random

import pytest

from headwater.connectors.postgres.events import repeated_keys
from tests.budget import IS_LONG
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.connectors.postgres.source_session import short, story
from tests.databases import Guest

DEFERRABLE = (
    "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, note text)",
    "ALTER TABLE t REPLICA IDENTITY FULL",
)
BY_INDEX = (
    "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, note text NOT NULL)",
    "CREATE UNIQUE INDEX told ON t (id, note)",
    "ALTER TABLE t REPLICA IDENTITY USING INDEX told",
)
CHOSEN = ("CREATE TABLE t (id int, note text)", "ALTER TABLE t REPLICA IDENTITY FULL")
KEYS = {"public.t": ["id"]}
SEEDS = 30 if IS_LONG else 1
FORMS = [(DEFERRABLE, {}), (BY_INDEX, {}), (CHOSEN, {"keys": KEYS})]
ROWS = "INSERT INTO t SELECT i, 'row ' || i FROM generate_series(1, 50) i"
SHIFT = "UPDATE t SET id = id + 1"
SWAP = "UPDATE t SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id IN (1, 2)"
REPLACED = "BEGIN; INSERT INTO t VALUES (3, 'new'); DELETE FROM t WHERE note = 'row 2'; COMMIT"
CAME_AND_WENT = "BEGIN; INSERT INTO t VALUES (4, 'gone'); DELETE FROM t WHERE note = 'gone'; COMMIT"
THERE_AND_BACK = (
    f"BEGIN; {SHIFT}; UPDATE t SET id = id - 1; {SHIFT}; UPDATE t SET note = 'x'; COMMIT"
)


@pytest.mark.parametrize(("form", "settings"), FORMS)
async def test_a_key_that_two_rows_had_for_a_moment_keeps_its_row(
    guest: Guest, form: tuple[str, ...], settings: dict[str, object]
) -> None:
    guest.execute(*form, ROWS)
    guest.publish("t")
    folded = Folded()
    await until_equal(folded, guest, **settings)

    for change in [SHIFT, SWAP, REPLACED, CAME_AND_WENT, THERE_AND_BACK]:
        guest.execute(change)
        await until_equal(folded, guest, **settings)

        assert differing(folded, guest, "t") == {}, change


async def test_rows_that_nothing_tells_apart_keep_their_keys(guest: Guest) -> None:
    guest.execute(*DEFERRABLE, "INSERT INTO t SELECT i, 'same' FROM generate_series(1, 50) i")
    guest.publish("t")
    folded = Folded()
    await until_equal(folded, guest)

    guest.execute(SHIFT, SWAP, CAME_AND_WENT, SHIFT)
    await until_equal(folded, guest)

    assert differing(folded, guest, "t") == {}


async def test_the_row_that_stays_is_said_behind_the_change_of_key(guest: Guest) -> None:
    guest.execute(*DEFERRABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    guest.publish("t")
    async with story(guest) as told:
        events = await told.tell(SHIFT)

    a, b = {"id": 2, "note": "a"}, {"id": 3, "note": "b"}
    assert short(events) == [
        ("d", {"id": 1, "note": "a"}),
        ("c", a),
        ("d", {"id": 2, "note": "b"}),
        ("c", b),
        ("c", a),
    ]
    assert [each.is_move for each in events] == [True] * 4 + [False]
    assert [each.index for each in events] == [0, 0, 1, 1, 1]
    assert not any(each.headers for each in events)


async def test_a_transaction_too_large_to_be_remembered_keeps_its_rows(
    guest: Guest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_keys, "KEYS_MAX", 10)
    guest.execute(*DEFERRABLE, ROWS)
    guest.publish("t")
    folded = Folded()
    await until_equal(folded, guest)

    guest.execute(SHIFT, THERE_AND_BACK)
    await until_equal(folded, guest)

    assert differing(folded, guest, "t") == {}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize(("form", "settings"), FORMS)
async def test_the_newest_records_are_the_table_whatever_happens(
    guest: Guest, form: tuple[str, ...], settings: dict[str, object], seed: int
) -> None:
    chance = random.Random(seed)
    guest.execute(*form, ROWS)
    guest.publish("t")
    folded = Folded()
    await until_equal(folded, guest, receive_bytes="64KiB", **settings)

    for _ in range(3):
        guest.execute(*(transaction(chance) for _ in range(20)))
        await until_equal(folded, guest, receive_bytes="64KiB", **settings)

        assert differing(folded, guest, "t") == {}


def transaction(chance: random.Random) -> str:
    """Ends with keys of which each has one row, whatever they were in between."""
    steps = [step(chance) for _ in range(chance.randint(1, 5))]
    cleaned = "DELETE FROM t a USING t b WHERE a.id = b.id AND a.ctid < b.ctid"
    return "; ".join(["BEGIN", *steps, cleaned, "COMMIT"])


def step(chance: random.Random) -> str:
    low, by = chance.randint(1, 60), chance.choice([-3, -1, 1, 2])
    some = f"id BETWEEN {low} AND {low + chance.randint(0, 30)}"
    note = f"(random() * {chance.choice([1, 1000])})::int::text || clock_timestamp()"
    return chance.choice(
        [
            f"UPDATE t SET id = id + {by} WHERE {some}",
            f"UPDATE t SET note = {note} WHERE {some}",
            f"UPDATE t SET id = {2 * low + 20} - id WHERE {some}",
            f"DELETE FROM t WHERE {some} AND random() < 0.5",
            f"INSERT INTO t SELECT i, {note} FROM generate_series({low}, {low + 9}) i",
        ]
    )
