"""A table that may not be read again by itself is held, and read once a person says so."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.schema_history import table_definition
from headwater.connectors.postgres.schema_history.table_definition import TableForm, why_read_again
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Control, FreeSpace
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import Phase, Replacement
from headwater.core_log.model.table_schema import TableId
from tests.connectors.postgres.schema_history.test_read_again import (
    CREATE,
    IN_PLACE,
    PARTITIONED,
    PARTITIONS,
    READ_AGAIN,
)
from tests.connectors.postgres.snapshot.table_log import Folded, in_table
from tests.connectors.postgres.source_session import source_context
from tests.databases import Guest
from tests.fakes import SimulatedClock

ITEMS = TableId("public", "items")
COMMAND = "headwater snapshot start shop/public.items"
FAIL = dict.fromkeys(
    ("add_column", "drop_column", "widen_type", "change_type", "change_key", "change_rows"), "fail"
)
REWRITTEN = "ALTER TABLE items ALTER a TYPE text USING upper(a)"


class Source:
    """One pipeline's, over its lives."""

    def __init__(self, guest: Guest, **context: Any) -> None:
        self.guest, self.context = guest, context
        self.settings: dict[str, Any] = {}
        self.folded = Folded()

    def create(self, statements: Sequence[str] = CREATE) -> None:
        self.guest.execute(*statements)
        self.guest.publish("items")

    async def to_end(self) -> None:
        """As `run --once` does it."""
        async with aclosing(self._made(until_end=True).changes(dict(self.folded.positions))) as all:
            async for batch in all:
                self.folded.take(batch)
        self.folded.killed()

    async def until(self, phase: Phase, signal: str = "") -> None:
        """One life in which somebody wants something of the table, until that is so."""
        self.folded.replacements.clear()
        async with aclosing(self.lives()) as lives:
            async for source in lives:
                if signal:
                    await source.control(Control(signal, "snapshot", ITEMS, {"action": signal}))
                    signal = ""
                    continue  # it is written down in the next batch
                if any(each.phase is phase for each in self.folded.replacements):
                    return

    async def lives(self) -> AsyncGenerator[PostgresSource]:
        source = self._made()
        async with aclosing(source.changes(dict(self.folded.positions))) as batches:
            async for batch in batches:
                self.folded.take(batch)
                if source._reading is not None and source._reading._following is not None:
                    yield source
        self.folded.killed()

    def _made(self, *, until_end: bool = False) -> PostgresSource:
        given = {
            "url": self.guest.url,
            "tables": ["public.items"],
            "heartbeat": "200ms",
            **self.settings,
            "snapshot": {"chunk_rows": 50, **self.settings.get("snapshot", {})},
        }
        context = replace(source_context(until_end=until_end), **{"settle_ms": 0, **self.context})
        return PostgresSource(PostgresSettings.model_validate(given), context)

    @property
    def is_equal(self) -> bool:
        return self.folded.rows("items") == in_table(self.guest, "items")

    @property
    def last(self) -> Replacement:
        return self.folded.replacements[-1]


@pytest.mark.parametrize("name", ["another type", "renamed", "an enum label", "attached"])
async def test_a_forbidden_change_is_held_before_any_row_is_read(guest: Guest, name: str) -> None:
    source = Source(guest, schema_changes=FAIL)
    source.create(PARTITIONED if name in PARTITIONS else CREATE)
    await source.to_end()
    source.folded.reads.clear()

    guest.execute(*(READ_AGAIN | IN_PLACE | PARTITIONS)[name])
    await source.to_end()
    held = source.last
    was_read = bool(source.folded.reads)
    await source.until(Phase.COMPLETE, "resume")

    assert not was_read
    assert held.phase is Phase.QUARANTINED
    assert "`schema_changes` does not allow" in held.why
    assert COMMAND in held.why
    assert source.is_equal


@pytest.mark.parametrize("how", ["dropped", "renamed", "not in the file"])
async def test_a_held_table_that_is_not_captured_any_more_is_not_waited_for(
    guest: Guest, how: str
) -> None:
    source = Source(guest, schema_changes=FAIL)
    guest.execute(*CREATE, "CREATE TABLE others (id int PRIMARY KEY)")
    guest.publish()
    source.settings = {"tables": ["public.items", "public.others"]}
    await source.to_end()
    guest.execute(REWRITTEN)
    await source.to_end()
    was_held = source.last.phase is Phase.QUARANTINED

    if how == "renamed":
        guest.execute("ALTER TABLE items RENAME TO goods")
    elif how == "dropped":
        guest.execute("DROP TABLE items")
    else:
        source.settings = {"tables": ["public.others"]}
    await source.to_end()
    await source.to_end()

    assert was_held
    assert (source.last.schema.table, source.last.phase) == (ITEMS, Phase.GONE)


KINDS = {
    "rewritten": {"change_type"},
    "another type": {"change_type"},
    "a wider type": {"widen_type"},
    "a default": {"add_column"},
    "a volatile default": {"add_column"},
    "renamed": {"add_column", "drop_column"},
    "names exchanged": {"add_column", "drop_column"},
    "dropped and added": {"add_column", "drop_column"},
    "an enum label": {"change_type"},
    **{name: {"change_rows"} for name in PARTITIONS},
}
MORE_KINDS = {
    "ALTER TABLE items ADD c int DEFAULT 7, ALTER b TYPE text": {"add_column", "change_type"},
    "ALTER TABLE items ALTER b TYPE numeric": {"widen_type"},
    "ALTER TABLE items ALTER b TYPE numeric(4, 1)": {"change_type"},
    "ALTER TABLE items ALTER b TYPE numeric(12, 1)": {"widen_type"},
    "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (id, b)": {"change_key"},
    "ALTER TABLE items RENAME b TO c; ALTER TABLE items ALTER c TYPE text": {
        "add_column",
        "drop_column",
        "change_type",
    },
}


async def test_each_change_is_of_the_kinds_that_may_be_forbidden(guest: Guest) -> None:
    cases = {name: (READ_AGAIN | IN_PLACE | PARTITIONS)[name] for name in KINDS}
    cases |= {text: [text] for text in MORE_KINDS}
    found = {}

    for name, statements in cases.items():
        guest.execute(
            "DROP TABLE IF EXISTS items, items_1",
            "DROP TABLE IF EXISTS items_3",
            "DROP TYPE IF EXISTS mood",
            *(PARTITIONED if name in PARTITIONS else CREATE),
        )
        before = await form_of(guest)
        guest.execute(*statements)
        found[name] = {*why_read_again(before, await form_of(guest)).kinds}

    assert found == KINDS | MORE_KINDS


async def form_of(guest: Guest) -> TableForm:
    settings = PostgresSettings.model_validate({"url": guest.owner, "tables": ["public.items"]})
    async with open_connection(settings) as connection:
        looked = await look(connection, settings, "shop")
        return (await table_definition.look(connection, looked.tables))[ITEMS]


async def test_an_edit_of_the_file_lets_a_held_table_go_on(guest: Guest) -> None:
    source = Source(guest, schema_changes=FAIL | {"change_type": "lenient"})
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)
    await source.to_end()
    was_held = source.last.phase is Phase.QUARANTINED

    source.context["schema_changes"] = FAIL | {"change_type": "ignore"}
    await source.to_end()

    assert was_held
    assert source.is_equal


async def test_a_table_without_a_key_is_held_and_read_again_as_any_other(guest: Guest) -> None:
    source = Source(guest, schema_changes=FAIL)
    source.create(["CREATE TABLE items (a text)", "INSERT INTO items VALUES ('b'), ('a'), ('a')"])
    await source.to_end()

    guest.execute(REWRITTEN)
    await source.to_end()
    held, was_read = source.last, bool(source.folded.truncates)
    await source.until(Phase.COMPLETE, "start")
    source.folded.replacements.clear()
    guest.execute("INSERT INTO items VALUES ('c')")
    await source.to_end()

    assert held.phase is Phase.QUARANTINED
    assert COMMAND in held.why
    assert not was_read
    assert not source.folded.replacements
    assert source.is_equal


async def test_one_forbidden_change_among_others_holds_the_table(guest: Guest) -> None:
    source = Source(guest, schema_changes={"change_type": "fail"})
    source.create()
    await source.to_end()

    guest.execute("ALTER TABLE items ADD c int DEFAULT 7", READ_AGAIN["another type"][0])
    await source.to_end()
    guest.execute("ALTER TABLE items ADD d int DEFAULT 7")
    await source.to_end()

    assert source.last.phase is Phase.QUARANTINED
    assert "does not allow change_type" in source.last.why


async def test_a_change_after_one_that_was_permitted_is_held_by_itself(guest: Guest) -> None:
    source = Source(guest, schema_changes={"change_type": "fail"})
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)
    await source.until(Phase.COMPLETE, "start")

    guest.execute("ALTER TABLE items ADD c int DEFAULT 7")
    await source.to_end()
    went_on = source.is_equal
    guest.execute(REWRITTEN)
    await source.to_end()

    assert went_on
    assert source.last.phase is Phase.QUARANTINED


@pytest.mark.parametrize("most, is_held", [(119, True), (120, False)])
async def test_a_table_with_more_rows_than_may_be_read_again_is_held(
    guest: Guest, most: int, is_held: bool
) -> None:
    source = Source(guest)
    source.create()
    await source.to_end()

    guest.execute(REWRITTEN, "ANALYZE items")
    source.settings["snapshot"] = {"reread_max_rows": most}
    await source.to_end()

    assert (source.last.phase is Phase.QUARANTINED) == is_held
    if is_held:
        assert "it has about 120 rows, and `snapshot.reread_max_rows` is 119" in source.last.why
        await source.until(Phase.COMPLETE, "start")
    assert source.is_equal


async def test_a_table_for_which_there_is_no_room_is_held(guest: Guest) -> None:
    room = FreeSpace(["the log", "lake"], 20_000)
    source = Source(guest, free_space=lambda: [room])
    source.create()
    await source.to_end()

    guest.execute(REWRITTEN)
    await source.to_end()
    held = source.last
    source.context["free_space"] = lambda: [FreeSpace(["the log", "lake"], 2**30)]
    await source.to_end()

    assert held.phase is Phase.QUARANTINED
    assert "it needs about" in held.why
    assert "for the log and lake, and 19.5 KiB are free" in held.why
    assert source.is_equal, "once there is room the next start reads it"


async def test_a_reading_says_how_much_it_is(guest: Guest) -> None:
    source = Source(guest, free_space=lambda: [FreeSpace(["the log"], 2**30)])
    source.create()
    source.settings["snapshot"] = {"max_rows_per_second": 1_000}
    await source.to_end()

    guest.execute(REWRITTEN, "ANALYZE items")
    await source.to_end()

    [began] = [each.why for each in source.folded.replacements if each.phase is Phase.STARTED]
    assert "(about 120 rows, " in began
    assert "KiB, 1 s; 1.0 GiB free for the log)" in began


async def test_the_third_reading_within_an_hour_waits_for_a_person(guest: Guest) -> None:
    clock = SimulatedClock(10**12)
    source = Source(guest, clock=clock)
    source.create()
    await source.to_end()
    phases = []

    for _ in range(3):
        clock.advance(20 * 60_000)
        guest.execute(REWRITTEN)
        await source.to_end()
        phases.append(source.last.phase)
    why = source.last.why
    clock.advance(3_600_001)
    guest.execute(REWRITTEN)
    await source.to_end()

    assert phases == [Phase.COMPLETE, Phase.COMPLETE, Phase.QUARANTINED]
    assert "it was read again twice within the last hour" in why
    assert COMMAND in why
    assert source.last.phase is Phase.COMPLETE
    assert source.is_equal


async def test_a_reading_that_is_stopped_begins_when_a_person_says_so(guest: Guest) -> None:
    source = Source(guest)
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)
    await source.until(Phase.STARTED)

    await source.until(Phase.QUARANTINED, "stop")
    held = source.last
    await source.to_end()
    guest.execute("DELETE FROM items WHERE id < 10", REWRITTEN)
    await source.to_end()
    is_held_still = source.last.phase is Phase.QUARANTINED
    await source.until(Phase.COMPLETE, "start")

    assert "its reading was stopped" in held.why
    assert COMMAND in held.why
    assert is_held_still
    assert source.is_equal


async def test_a_table_that_is_held_is_not_read_by_a_condition(guest: Guest) -> None:
    source = Source(guest, schema_changes=FAIL)
    source.create()
    await source.to_end()
    guest.execute(REWRITTEN)

    async with aclosing(source.lives()) as lives:
        async for running in lives:
            if source.folded.replacements:
                signal = Control("w", "snapshot", ITEMS, {"action": "start", "where": "id < 5"})
                with pytest.raises(SourceRejected, match="only be read as a whole"):
                    await running.control(signal)
                break
