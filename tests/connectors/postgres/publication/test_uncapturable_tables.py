"""A table that cannot be captured is left out alone, says its cure, and comes once it is cured."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.postgres.discovery import look
from headwater.connectors.postgres.publication.monitor import LOOK_MS, NEW_TABLES, REFUSED
from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.source import Remark, SourceReport
from headwater.core_log.foundation.errors import Diagnostic
from headwater.pipelines.terminal import exit_codes
from tests.connectors.postgres.publication.test_changed_publications import settings_of, watching
from tests.connectors.postgres.snapshot.table_log import Folded, differing, until_equal
from tests.databases import Guest
from tests.fakes import SimulatedClock
from tests.pipelines.test_undelivered_tables import once

ORDERS = (
    "CREATE TABLE orders (id int PRIMARY KEY)",
    "INSERT INTO orders SELECT generate_series(1, 9)",
)
BARE = ("CREATE TABLE bare (id int, note text)", "INSERT INTO bare VALUES (1, 'a'), (2, 'b')")
BY_MAIL = (
    "CREATE TABLE bare (id int PRIMARY KEY, note text NOT NULL UNIQUE)",
    "ALTER TABLE bare REPLICA IDENTITY USING INDEX bare_note_key",
    "INSERT INTO bare VALUES (1, 'a'), (2, 'b')",
)
PARTITION = (
    "CREATE TABLE bare (id int, note text) PARTITION BY RANGE (id)",
    "CREATE TABLE bare_1 PARTITION OF bare FOR VALUES FROM (0) TO (9)",
    "ALTER TABLE bare REPLICA IDENTITY FULL",
    "INSERT INTO bare VALUES (1, 'a'), (2, 'b')",
)
CHANGES = ("UPDATE bare SET note = 'c' WHERE id = 1", "DELETE FROM bare WHERE id = 2")


def refusal(said: list[SourceReport]) -> Diagnostic | None:
    [*_, last] = [each for each in said if isinstance(each, Remark) and each.name == REFUSED]
    return last.finding


@pytest.mark.parametrize(
    "tables", [["public.*"], ["public.orders", "public.bare"]], ids=["a pattern", "names"]
)
@pytest.mark.parametrize("made", [BARE, BY_MAIL, PARTITION], ids=["bare", "index", "partition"])
async def test_a_table_whose_rows_cannot_be_told_apart_is_left_out_alone_until_it_is_cured(
    guest: Guest, tables: list[str], made: tuple[str, ...]
) -> None:
    guest.execute(*ORDERS)
    folded, said = Folded(), list[SourceReport]()
    chosen: dict[str, Any] = {"url": guest.owner, "tables": tables, "report": said.append}
    chosen["keys"] = {"public.bare": ["id"]}
    await until_equal(folded, guest, **chosen)

    guest.execute(*made, *CHANGES, "DELETE FROM orders WHERE id = 1")
    await until_equal(folded, guest, **chosen)
    found, captured = refusal(said), set(folded.tables)
    left = differing(folded, guest, "orders")
    assert found is not None
    guest.execute(*found.hint.split(" Or leave")[0].split("; "))
    guest.execute("INSERT INTO bare VALUES (3, 'd')")
    await until_equal(folded, guest, **chosen)
    guest.execute("UPDATE bare SET note = 'e' WHERE id = 3", "DELETE FROM bare WHERE id = 1")
    await until_equal(folded, guest, **chosen)

    assert found.left_out == ("public.bare",) and not found.is_fatal
    assert captured == {"orders"} and not left
    assert not differing(folded, guest, "bare") and not differing(folded, guest, "orders")


async def test_a_cure_is_found_in_a_running_source_and_ends_the_life_that_left_the_table_out(
    guest: Guest,
) -> None:
    guest.execute(*ORDERS, *BY_MAIL)
    guest.publish()
    settings, clock = settings_of(guest), SimulatedClock(0)

    async with await connect(settings) as connection:
        looked = await look(connection, settings, "shop")
        watch, said = await watching(
            guest, [each.table for each in looked.tables], clock, looked.refused
        )
        before = await watch.look(connection)
        guest.execute("ALTER TABLE bare REPLICA IDENTITY DEFAULT")
        unasked = await watch.look(connection)
        clock.advance(LOOK_MS)
        after = await watch.look(connection)

    assert before is None and unasked is None
    assert after is not None and after.facts["tables"] == "public.bare"
    assert not any(isinstance(each, Remark) and each.name == NEW_TABLES for each in said)


async def test_a_table_that_comes_later_is_left_out_with_its_reason(guest: Guest) -> None:
    guest.execute(*ORDERS)
    guest.publish("orders")
    settings, clock = settings_of(guest), SimulatedClock(0)

    async with await connect(settings) as connection:
        looked = await look(connection, settings, "shop")
        watch, said = await watching(
            guest, [each.table for each in looked.tables], clock, looked.refused
        )
        guest.execute("CREATE TABLE views (path text)")
        assert await watch.look(connection) is None

    found = refusal(said)
    assert found is not None and found.left_out == ("public.views",)
    assert "public.views: " in found.problem and found.hint


@pytest.mark.slow
def test_a_run_to_the_end_names_it_and_delivers_the_others(guest: Guest, tmp_path: Path) -> None:
    guest.execute(*ORDERS, *BARE)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"pipeline: shop\nworkers: 0\nsource: {{type: postgres, url: '{guest.owner}',"
        " tables: [public.*]}\n"
        "sink: {type: sql, url: 'sqlite:///shop.db', commit_every: 0s}\n"
    )

    code, said, _ = once(file)

    assert code == exit_codes.DIFFERENT
    [found] = said["data"]["undelivered"]
    assert (found["table"], found["state"]) == ("public.bare", "left out")
    assert 'ALTER TABLE "public"."bare" REPLICA IDENTITY FULL' in found["reason"]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (9,)
