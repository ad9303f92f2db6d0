"""Records of one topic have keys of one type."""

from contextlib import aclosing

import pytest

from headwater.core_log.model.changes import Phase
from tests.connectors.postgres.snapshot.table_log import (
    Folded,
    in_table,
    source_of,
    until_equal,
)
from tests.databases import Guest

OTHER_TYPES = {
    "wider": "ALTER TABLE items ALTER id TYPE bigint",
    "text": "ALTER TABLE items ALTER id TYPE text",
}


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
@pytest.mark.parametrize("name", OTHER_TYPES)
async def test_no_change_has_a_key_of_another_type_before_its_reread_starts(
    guest: Guest, name: str, identity: str
) -> None:
    """Neither in this life nor in the next one."""
    guest.execute(
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        f"ALTER TABLE items REPLICA IDENTITY {identity}",
        "INSERT INTO items SELECT i, 'a' || i FROM generate_series(1, 20) i",
    )
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    former = folded.schemas["items"][-1]

    guest.execute("INSERT INTO others VALUES (0)")  # so that a batch comes
    is_told = False
    source = source_of(guest, heartbeat="1h")  # no re-read within the 30 seconds of its settle time
    async with aclosing(source.changes(dict(folded.positions))) as batches:
        async for batch in batches:
            folded.take(batch)
            if not is_told:
                is_told = True
                await guest.run(
                    OTHER_TYPES[name],
                    "UPDATE items SET a = 'b' WHERE a = 'a7'",
                    "DELETE FROM items WHERE a = 'a8'",
                    "INSERT INTO others VALUES (1)",
                )
            if (1,) in folded.tables["others"]:
                break
    folded.killed()
    assert folded.schemas["items"][-1] == former
    assert Phase.STARTED not in [each.phase for each in folded.replacements]

    guest.until_nobody_streams()
    guest.execute("INSERT INTO items VALUES ('21', 'c')")
    await until_equal(folded, guest)

    assert folded.rows("items") == in_table(guest, "items")
    assert folded.replaced == ["items"]
