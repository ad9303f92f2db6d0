"""A table that our role may not read, or not publish, is left out alone until somebody cures it."""

from collections.abc import Iterator

import pytest

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.postgres.publication.monitor import REFUSED
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected, SourceUnavailable
from tests.connectors.postgres.publication.test_changed_publications import ending, settings_of
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.connectors.postgres.source_session import story
from tests.databases import GUEST, Guest

BARE = "CREATE TABLE bare (id int PRIMARY KEY, note text)"
OTHERS = ("CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
ROWS = "INSERT INTO bare VALUES (1, 'a'), (2, 'b')"
PARTITIONED = (
    "CREATE TABLE bare (id int PRIMARY KEY, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE bare_1 PARTITION OF bare FOR VALUES FROM (0) TO (2)",
    "CREATE TABLE bare_2 PARTITION OF bare FOR VALUES FROM (2) TO (9)",
)
DROPPED = "ALTER PUBLICATION headwater_shop DROP TABLE bare"
LACKS = {
    "SELECT": ((BARE,), True, f"REVOKE SELECT ON bare FROM {GUEST}", "no SELECT right"),
    "partition": (PARTITIONED, False, f"REVOKE SELECT ON bare_2 FROM {GUEST}", "public.bare_2"),
    "schema": (
        (BARE,),
        False,
        f"REVOKE USAGE ON SCHEMA public FROM PUBLIC, {GUEST}",
        "no USAGE right",
    ),
    "rows": ((BARE,), False, "ALTER TABLE bare ENABLE ROW LEVEL SECURITY", "row security hides"),
    "publication": ((BARE,), False, DROPPED, "may not add it"),
    "given publication": ((BARE,), True, DROPPED, "the file says that it is given"),
}
"""What is made, whether it is read before, what takes the right, and what is said of it."""


def refusal(said: list[SourceReport]) -> Diagnostic:
    [*_, last] = [each for each in said if isinstance(each, Remark) and each.name == REFUSED]
    assert last.finding is not None
    return last.finding


@pytest.fixture
def shop(guest: Guest) -> Iterator[Guest]:
    """With a schema beside the one of which rights are taken."""
    guest.execute("CREATE SCHEMA side", "SET search_path = side; " + "; ".join(OTHERS))
    yield guest
    guest.execute(f"ALTER ROLE {GUEST} NOBYPASSRLS")


@pytest.mark.parametrize(("made", "is_read", "lacks", "reason"), LACKS.values(), ids=LACKS)
async def test_a_table_without_rights_is_left_out_alone_and_read_once_cured(
    shop: Guest, made: tuple[str, ...], is_read: bool, lacks: str, reason: str
) -> None:
    create = "never" if "given" in reason else "auto"
    shop.execute(*made, ROWS)
    shop.publish("side.orders", "bare")
    folded, said = Folded(), list[SourceReport]()
    tables = {"tables": ["public.*", "side.*"], "publication": {"create": create}}
    if is_read:
        await until_equal(folded, shop, **tables)
    shop.execute(lacks, "DELETE FROM bare WHERE id = 1", "INSERT INTO side.orders VALUES (3)")

    await until_equal(folded, shop, report=said.append, **tables)
    found, others = refusal(said), differing(folded, shop, "side.orders")
    seen = folded.rows("bare")
    shop.execute("INSERT INTO bare VALUES (3, 'c')", found.hint.partition(";")[0])
    await until_equal(folded, shop, **tables)
    shop.execute("UPDATE bare SET note = 'd' WHERE id = 2")
    await until_equal(folded, shop, **tables)

    assert found.left_out == ("public.bare",) and not found.is_fatal
    assert reason in found.problem
    assert not others and len(seen) == (2 if is_read else 0)
    assert not differing(folded, shop, "bare") and not differing(folded, shop, "side.orders")


async def test_one_that_is_not_ours_does_not_keep_us_from_publishing_the_others(
    shop: Guest,
) -> None:
    shop.execute(
        BARE,
        ROWS,
        f"ALTER TABLE side.orders OWNER TO {GUEST}",
        f"DO $$ BEGIN EXECUTE 'GRANT CREATE ON DATABASE ' || quote_ident(current_database())"
        f" || ' TO {GUEST}'; END $$",
    )
    folded, said = Folded(), list[SourceReport]()
    tables = {"tables": ["public.*", "side.*"]}

    await until_equal(folded, shop, report=said.append, **tables)
    found, others = refusal(said), differing(folded, shop, "side.orders")
    shop.execute(found.hint.partition(";")[0])
    await until_equal(folded, shop, **tables)

    assert not others and not differing(folded, shop, "bare")


async def test_a_right_that_is_taken_while_a_value_has_to_be_read_ends_no_other_table(
    shop: Guest,
) -> None:
    shop.execute(BARE, "ALTER TABLE bare ALTER note SET STORAGE EXTERNAL")
    shop.execute("INSERT INTO bare SELECT n, repeat('a', 9000) FROM generate_series(1, 2) n")
    shop.publish("side.orders", "bare")
    folded, said = Folded(), list[SourceReport]()
    tables = {"tables": ["public.*", "side.*"]}
    await until_equal(folded, shop, **tables)

    async with story(shop, positions=folded.positions, **tables) as told:
        shop.execute(f"REVOKE SELECT ON bare FROM {GUEST}", "UPDATE bare SET id = 3 WHERE id = 1")
        with pytest.raises(SourceUnavailable, match="captured any more") as end:
            await ending(told)
    shop.execute("INSERT INTO side.orders VALUES (4)")
    await until_equal(folded, shop, report=said.append, **tables)
    others = differing(folded, shop, "side.orders")
    shop.execute(refusal(said).hint.partition(";")[0])
    await until_equal(folded, shop, **tables)

    assert "public.bare" in str(end.value.facts["tables"])
    assert not others and not differing(folded, shop, "bare")


async def test_doctor_names_several_that_lack_the_same_at_once(guest: Guest) -> None:
    names = [f"t{number}" for number in range(3)]
    guest.execute(*(f"CREATE TABLE {each} (id int PRIMARY KEY)" for each in names))
    guest.execute(f"REVOKE SELECT ON t0, t1, t2 FROM {GUEST}")
    guest.publish()

    [found] = await examine(settings_of(guest), "shop")
    with pytest.raises(SourceRejected, match="can be captured") as refused:
        await until_equal(Folded(), guest)

    assert found.problem.startswith("public.t0, public.t1, public.t2 are left out")
    assert found.hint in refused.value.hint and found.hint.count("GRANT") == 1
