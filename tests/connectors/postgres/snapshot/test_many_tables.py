"""As many tables as large applications have, of which most say nothing for most of the time."""

import pytest

from tests.budget import IS_LONG
from tests.connectors.postgres.snapshot.table_log import Folded, Told, live, source_of, until_equal
from tests.databases import Guest

TABLES = 2_000 if IS_LONG else 400
AT_ONCE = 200
"""Statements of one round trip, so that the server need not hold locks on all tables at once."""


@pytest.mark.compat
async def test_hundreds_of_tables_are_read_and_followed(guest: Guest) -> None:
    names = [f"t{number:04}" for number in range(TABLES)]
    made = [
        f"CREATE TABLE {name} (id int PRIMARY KEY, said text);"
        f"INSERT INTO {name} SELECT i, '{name}' FROM generate_series(1, 3) i"
        for name in names
    ]
    guest.execute(*(";".join(made[at : at + AT_ONCE]) for at in range(0, TABLES, AT_ONCE)))
    guest.publish()
    folded, told = Folded(), Told()

    await live(folded, source_of(guest), batches=TABLES // 3)
    await until_equal(folded, guest, report=told)
    guest.execute(
        "INSERT INTO t0007 VALUES (4, 'new')",
        f"BEGIN; UPDATE {names[-1]} SET said = 'other' WHERE id = 2; DELETE FROM t0000; COMMIT",
    )
    await until_equal(folded, guest)

    expected = {name: {1: name, 2: name, 3: name} for name in names}
    expected["t0007"][4] = "new"
    expected[names[-1]][2] = "other"
    expected["t0000"] = {}
    found = {name: {row["id"]: row["said"] for row in folded.rows(name)} for name in sorted(names)}
    assert found == expected
    assert len(folded.reads) == len(set(folded.reads)) == 3 * TABLES, "each row was read once"
    assert all(each.is_done for each in told.newest.values())
