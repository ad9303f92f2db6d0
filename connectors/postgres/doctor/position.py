"""Whether the stream can go on where the log says that we stand, before it is tried."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from headwater.connectors.postgres import lost_keys
from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.doctor.slots import drop_sql
from headwater.connectors.postgres.publication import coverage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication, publication_name
from headwater.connectors.postgres.server.connection import connect
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.slot.replication_slot import Slot, reader_name, slot_name
from headwater.connectors.postgres.slot.resume_check import (
    LOST_HINT,
    STREAM,
    may_begin_again,
    slot_lost,
    why_lost,
)
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import HeadwaterError, PositionLost
from headwater.core_log.model.changes import Positions


async def examine_position(
    settings: PostgresSettings, pipeline: str, stored: Callable[[], Awaitable[Positions]]
) -> list[Diagnostic]:
    """Changes nothing. A server out of reach, and a slot that is none of ours or that the server
    has given up, are found by `examine`."""
    name, publication = slot_name(settings, pipeline), publication_name(settings, pipeline)
    try:
        line = await connect(settings, replication=True)
    except HeadwaterError:
        return []
    async with line:
        slot = await replication_slot.look(line, name)
        found = await published_tables.look(line, publication)
        if slot is not None and (slot.is_lost or slot.plugin != replication_slot.PLUGIN):
            return []
        positions = await stored()
        if STREAM not in positions:
            return list(_about_a_slot_of_others(settings, slot, reader=reader_name(pipeline)))
        is_over = settings.snapshot.mode == "initial_only" and coverage.are_all_read(positions)
        if slot is None and is_over:
            return []  # it went when the rows had been read
        if why := await why_lost(line, slot, positions):
            return [_find_lost(settings, slot_lost(why, name, positions))]
        if why := coverage.why_lost(positions, found):
            error = PositionLost(why, publication=publication, hint=LOST_HINT)
            return [_find_lost(settings, error)]
        try:
            async with open_connection(settings) as connection:
                tables = (await look(connection, settings, pipeline)).tables
        except HeadwaterError:
            return []  # `examine` says why
        return [
            *_about_lost_keys(settings, positions, tables),
            *_about_missed(settings, pipeline, positions, found, tables),
        ]


def _about_lost_keys(
    settings: PostgresSettings, positions: Positions, tables: Sequence[CapturedTable]
) -> list[Diagnostic]:
    if settings.snapshot.mode == "never":
        return []
    held = lost_keys.finding_of([each.table for each in lost_keys.held_of(positions, tables)])
    return [] if held is None else [held]


def _about_missed(
    settings: PostgresSettings,
    pipeline: str,
    positions: Positions,
    found: Publication | None,
    tables: Sequence[CapturedTable],
) -> list[Diagnostic]:
    missed = coverage.missed_of(positions, found, lost_keys.not_awaited(positions, tables))
    if not missed:
        return []
    error = coverage.not_sent(missed, publication_name(settings, pipeline))
    if settings.snapshot.mode == "never":
        cure = "none is needed: the next run goes on all the same, as no rows are to be read"
        return [Diagnostic(error.statement, cure, is_fatal=False)]
    return [_find_lost(settings, error)]


def _find_lost(settings: PostgresSettings, error: PositionLost) -> Diagnostic:
    if may_begin_again(settings):
        cure = (
            "none is needed: the next run empties the tables and reads all rows, as the file says"
        )
        return Diagnostic(error.statement, cure, is_fatal=False)
    return Diagnostic(error.statement, error.hint)


def _about_a_slot_of_others(
    settings: PostgresSettings, slot: Slot | None, *, reader: str
) -> Iterator[Diagnostic]:
    """A slot of our own name, of which our log knows nothing. One that is being made has not come
    to any place yet."""
    if slot is None or slot.confirmed is None or settings.slot.name:
        return
    cure = "name this pipeline otherwise, or give it a slot of its own under `slot.name`"
    if slot.reader_pid is not None:
        if slot.reader_name == reader:
            yield Diagnostic(
                f"a pipeline of this name, with another log, streams from slot {slot.name}: pid"
                f" {slot.reader_pid}",
                f"{cure}, or: SELECT pg_terminate_backend({slot.reader_pid});",
            )
        return
    yield Diagnostic(
        f"slot {slot.name} is there, and this log has no position of it: the first run drops it and"
        " makes it anew, and a pipeline of this name with another log would lose its place",
        f"{cure}; or, if nobody needs the slot: {drop_sql(slot)}",
        is_fatal=False,
    )
