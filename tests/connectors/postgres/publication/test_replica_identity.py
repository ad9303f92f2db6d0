"""A partition has a replica identity of its own, whatever its table says: what it does not send is
not taken for null, and doctor says which partitions send too little."""

from headwater.connectors.postgres.doctor.doctor import examine
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic
from tests.connectors.postgres.publication.test_changed_publications import settings_of
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.connectors.postgres.source_session import events_of, story
from tests.databases import Guest

DAYS = (
    "CREATE TABLE days (day int NOT NULL, id int NOT NULL, note text NOT NULL, more text)"
    " PARTITION BY RANGE (day)",
    "CREATE TABLE low PARTITION OF days FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE high PARTITION OF days FOR VALUES FROM (100) TO (200)",
    "ALTER TABLE days REPLICA IDENTITY FULL",
    "ALTER TABLE high REPLICA IDENTITY FULL",
)
ROWS = "INSERT INTO days SELECT g, g, 'note', 'more' FROM generate_series(1, 199) g"
BY_BOTH = "ALTER TABLE low ADD PRIMARY KEY (id, day)"
BY_NOTE = (
    "CREATE UNIQUE INDEX by_note ON low (note, day)",
    "ALTER TABLE low REPLICA IDENTITY USING INDEX by_note",
)
KEYS = {"public.days": ["id"]}


async def findings(guest: Guest) -> list[Diagnostic]:
    return await examine(settings_of(guest, keys=KEYS), "shop")


async def test_columns_that_a_partition_leaves_out_of_the_row_before_are_not_null(
    guest: Guest,
) -> None:
    guest.execute(*DAYS, BY_BOTH, ROWS)
    guest.publish()

    async with story(guest, keys=KEYS) as told:
        await told.tell("INSERT INTO days VALUES (110, 500, 'note', NULL)")
        events = await told.tell(
            "UPDATE days SET day = 70 WHERE id = 7",
            "UPDATE days SET day = 111 WHERE id = 500",
            "DELETE FROM days WHERE id = 8",
        )

    whole = {"day": 110, "id": 500, "note": "note", "more": None}
    assert [(each.operation, each.row["id"], each.before) for each in events] == [
        ("u", 7, None), ("u", 500, whole), ("d", 8, None),
    ]  # fmt: skip


async def test_changes_older_than_a_mended_identity_are_read_as_they_were(
    guest: Guest,
) -> None:
    guest.execute(*DAYS, BY_BOTH, ROWS)
    guest.publish()
    async with story(guest, keys=KEYS) as told:
        await told.tell("INSERT INTO days VALUES (110, 500, 'note', NULL)")
    guest.execute(
        "UPDATE days SET day = 70 WHERE id = 7",
        "UPDATE days SET note = 'new' WHERE id = 6",
        "ALTER TABLE low REPLICA IDENTITY FULL",
        "UPDATE days SET day = 71 WHERE id = 7",
    )

    async with story(guest, positions=told.positions, keys=KEYS) as again:
        events = [each for changes in again.tables for each in events_of(changes)]

    whole = {"day": 70, "id": 7, "note": "note", "more": "more"}
    assert [each.before for each in events] == [None, None, whole]


async def test_a_key_that_a_partition_does_not_send_is_cured_as_it_says(guest: Guest) -> None:
    guest.execute(*DAYS, ROWS.replace("'note'", "g::text"), "CREATE TABLE other (id int)")
    guest.publish()
    folded = Folded()
    await until_equal(folded, guest, keys=KEYS)
    guest.execute(*BY_NOTE, "UPDATE days SET id = 1000 WHERE id = 7")
    guest.execute("INSERT INTO other VALUES (1)")

    said = list[SourceReport]()
    await until_equal(folded, guest, keys=KEYS, report=said.append)
    [found] = [each.finding for each in said if isinstance(each, Remark) and each.finding]
    guest.execute(found.hint.split(" Or ")[0])
    await until_equal(folded, guest, keys=KEYS)

    assert '"public"."low" REPLICA IDENTITY FULL' in found.hint
    assert folded.rows("other") == [{"id": 1}] and not differing(folded, guest, "days")


async def test_doctor_says_which_partitions_send_no_row_before(guest: Guest) -> None:
    guest.execute(*DAYS, BY_BOTH)
    guest.publish()

    [found] = await findings(guest)
    guest.execute(found.hint)

    assert "public.low" in found.problem and "public.days" in found.problem
    assert "public.high" not in found.problem and not found.is_fatal
    assert await findings(guest) == []


async def test_doctor_says_which_partitions_do_not_send_the_key(guest: Guest) -> None:
    guest.execute(*DAYS, *BY_NOTE)
    guest.publish()

    [found] = await findings(guest)
    guest.execute(found.hint)

    assert "deleted rows of public.low" in found.problem and found.is_fatal
    assert await findings(guest) == []
