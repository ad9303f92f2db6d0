"""Rows are told apart by what the server sends of them, and where that is not enough it is said."""

import pytest

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import SourceRejected
from tests.connectors.postgres.publication.test_changed_publications import settings_of
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.databases import Guest

BY_MAIL = (
    "CREATE TABLE users (id int PRIMARY KEY, mail text NOT NULL UNIQUE)",
    "ALTER TABLE users REPLICA IDENTITY USING INDEX users_mail_key",
    "INSERT INTO users VALUES (1, 'a@b'), (2, 'c@d')",
)
OTHERS = ("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")


async def test_columns_that_an_index_includes_are_none_of_the_key(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE users (id int, mail text, n int, PRIMARY KEY (id) INCLUDE (mail))",
        "INSERT INTO users VALUES (1, 'a@b', 1), (2, 'c@d', 2)",
    )
    guest.publish()
    folded = Folded()

    await until_equal(folded, guest)
    guest.execute("UPDATE users SET mail = 'e@f' WHERE id = 1", "DELETE FROM users WHERE id = 2")
    await until_equal(folded, guest)

    assert not differing(folded, guest, "users")


@pytest.mark.parametrize(
    "change", ["UPDATE users SET id = 3 WHERE id = 1", "DELETE FROM users WHERE id = 1"]
)
async def test_a_key_that_comes_to_be_sent_no_more_is_cured_as_it_says_and_holds_up_no_other(
    guest: Guest, change: str
) -> None:
    index, *tables = BY_MAIL[1], BY_MAIL[0], *BY_MAIL[2:], *OTHERS
    guest.execute(*tables)
    guest.publish()
    folded, said = Folded(), list[SourceReport]()
    await until_equal(folded, guest)
    guest.execute(index, change, "INSERT INTO orders VALUES (2)")

    await until_equal(folded, guest, report=said.append)
    [found] = [each.finding for each in said if isinstance(each, Remark) and each.finding]
    others = differing(folded, guest, "orders")
    guest.execute(found.hint.split(" Or ")[0])
    await until_equal(folded, guest)

    assert found.left_out == ("public.users",) and "are sent without id" in found.problem
    assert not others and not differing(folded, guest, "users")


async def test_a_change_without_its_key_holds_up_its_table_alone_until_that_is_read_again(
    guest: Guest,
) -> None:
    """The catalogue is well again by the time that the stream comes to the change."""
    guest.execute(BY_MAIL[0], *BY_MAIL[2:], *OTHERS)
    guest.publish()
    folded, said = Folded(), list[SourceReport]()
    await until_equal(folded, guest)
    guest.execute(
        BY_MAIL[1],
        "DELETE FROM users WHERE id = 1",
        "ALTER TABLE users REPLICA IDENTITY DEFAULT",
        "UPDATE users SET mail = 'g@h' WHERE id = 2",
        "INSERT INTO orders VALUES (2)",
    )

    await until_equal(folded, guest, report=said.append)
    [found] = [each.finding for each in said if isinstance(each, Remark) and each.finding]
    held, others = folded.rows("users"), differing(folded, guest, "orders")
    await until_equal(folded, guest, report=said.append)
    guest.execute("DELETE FROM users WHERE id = 2")
    await until_equal(folded, guest)

    assert found.left_out == ("public.users",) and len(held) == 2
    assert not others and len(folded.replaced) == 1
    assert not differing(folded, guest, "users") and not differing(folded, guest, "orders")


async def test_a_row_that_keeps_its_key_is_told_by_the_keys_of_its_partitions(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE days (day int, id int, n int) PARTITION BY RANGE (day)",
        "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (100)",
        "ALTER TABLE day_1 ADD PRIMARY KEY (id)",
        "INSERT INTO days VALUES (1, 1, 1), (2, 2, 2)",
    )
    guest.publish()
    folded, keys = Folded(), {"public.days": ["id"]}

    await until_equal(folded, guest, keys=keys)
    guest.execute("UPDATE days SET id = 3 WHERE id = 1", "UPDATE days SET n = 9 WHERE id = 2")
    await until_equal(folded, guest, keys=keys)

    assert not differing(folded, guest, "days")


async def test_the_key_of_partitions_may_be_renamed_before_its_changes_are_read(
    guest: Guest,
) -> None:
    guest.execute(
        "CREATE TABLE days (day int PRIMARY KEY, n int) PARTITION BY RANGE (day)",
        "CREATE TABLE day_1 PARTITION OF days FOR VALUES FROM (0) TO (100)",
        "INSERT INTO days VALUES (1, 1), (2, 2)",
    )
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest)
    guest.execute("UPDATE days SET n = 3", "ALTER TABLE days RENAME day TO at")

    await until_equal(folded, guest)

    assert folded.rows("days") == [{"at": 1, "n": 3}, {"at": 2, "n": 3}]


@pytest.mark.parametrize("keys", [{"public.users": ["gone"]}, {}], ids=["chosen", "its own"])
async def test_a_key_that_cannot_be_had_holds_up_no_other_table(
    guest: Guest, keys: dict[str, list[str]]
) -> None:
    column = "int" if keys else "int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY"
    guest.execute(f"CREATE TABLE users (a int, id {column})", *OTHERS)
    guest.publish()
    folded, said = Folded(), list[SourceReport]()

    await until_equal(folded, guest, keys=keys, report=said.append)

    [found] = [each.finding for each in said if isinstance(each, Remark) and each.finding]
    assert found.left_out == ("public.users",)
    assert ("gone" if keys else "id") in found.problem
    assert not differing(folded, guest, "orders") and folded.tables.keys() == {"orders"}


async def test_a_key_that_is_not_captured_is_said_and_cured(guest: Guest) -> None:
    guest.execute(
        "CREATE TABLE users (a int, id int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)",
        "INSERT INTO users VALUES (1), (2)",
    )
    guest.publish()
    folded = Folded()

    with pytest.raises(SourceRejected, match="can be captured") as refused:
        await until_equal(folded, guest)
    found, *others = await examine(settings_of(guest), "shop")
    guest.execute("ALTER TABLE public.users REPLICA IDENTITY FULL")
    guest.execute(*(each.hint for each in others))
    await until_equal(folded, guest, keys={"public.users": ["a"]})
    guest.execute("UPDATE users SET a = 5 WHERE a = 1", "DELETE FROM users WHERE a = 2")
    await until_equal(folded, guest, keys={"public.users": ["a"]})

    assert "REPLICA IDENTITY FULL" in refused.value.hint and found.is_fatal
    assert "publish_generated_columns = stored" in refused.value.hint
    refuses = guest.value("SELECT current_setting('server_version_num')::int") >= 18_0000
    assert ["generated" in each.problem for each in others] == ([True] if refuses else [])
    assert [row["a"] for row in folded.rows("users")] == [5]


async def test_a_table_without_columns_holds_up_no_other(guest: Guest) -> None:
    guest.execute("CREATE TABLE nothing ()", "INSERT INTO nothing DEFAULT VALUES", *OTHERS)
    guest.publish()
    folded = Folded()

    await until_equal(folded, guest)
    guest.execute("INSERT INTO nothing DEFAULT VALUES", "INSERT INTO orders VALUES (2)")
    await until_equal(folded, guest)
    guest.execute("ALTER TABLE nothing ADD COLUMN id int", "INSERT INTO nothing VALUES (7)")
    await until_equal(folded, guest)
    await until_equal(folded, guest)

    assert not differing(folded, guest, "orders")
    assert [row["id"] for row in folded.rows("nothing")] == [7, None, None]


async def test_a_null_in_a_key_that_was_chosen_holds_up_no_other_row(guest: Guest) -> None:
    """It is the key of its row all the same, which targets set aside."""
    guest.execute(
        "CREATE TABLE users (id int, mail text)",
        "ALTER TABLE users REPLICA IDENTITY FULL",
        "INSERT INTO users VALUES (1, 'a@b'), (2, 'c@d'), (NULL, 'e@f')",
    )
    guest.publish()
    folded, keys = Folded(), {"public.users": ["id"]}

    await until_equal(folded, guest, keys=keys)
    read = folded.rows("users")
    guest.execute(
        "UPDATE users SET id = 3 WHERE id IS NULL",
        "UPDATE users SET id = NULL WHERE id = 1",
        "UPDATE users SET mail = 'new' WHERE id IS NULL",
        "INSERT INTO users VALUES (4, 'g@h')",
    )
    await until_equal(folded, guest, keys=keys)
    changed = folded.rows("users")
    guest.execute("DELETE FROM users WHERE id IS NULL OR id = 2")
    await until_equal(folded, guest, keys=keys)

    assert [row["id"] for row in read] == [1, 2, None]
    assert changed == [
        {"id": 2, "mail": "c@d"},
        {"id": 3, "mail": "e@f"},
        {"id": 4, "mail": "g@h"},
        {"id": None, "mail": "new"},
    ]
    assert not differing(folded, guest, "users")
