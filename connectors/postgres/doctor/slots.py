"""Checks of the replication slot: the existing one, or the one to be created."""

from collections.abc import Awaitable, Callable, Iterator, Sequence

from headwater.connectors.postgres import lost_keys
from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.discovery import look, open_connection
from headwater.connectors.postgres.doctor.tables import literal
from headwater.connectors.postgres.publication import coverage, published_tables
from headwater.connectors.postgres.publication.published_tables import Publication, publication_name
from headwater.connectors.postgres.server.connection import PgConnection, connect, in_our_words
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot import replication_slot, standbys
from headwater.connectors.postgres.slot.replication_slot import Slot, reader_name, slot_name
from headwater.connectors.postgres.slot.resume_check import (
    LOST_HINT,
    STREAM,
    may_begin_again,
    slot_lost,
    why_lost,
)
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError, PositionLost
from headwater.core_log.model.changes import Positions

WAITING = """
SELECT 'pid ' || pid, extract(epoch FROM now() - xact_start)::bigint,
    'SELECT pg_terminate_backend(' || pid || ');'
FROM pg_catalog.pg_stat_activity
WHERE backend_xid IS NOT NULL AND now() - xact_start > %s * interval '1 second'
UNION ALL
SELECT 'prepared ' || quote_literal(gid), extract(epoch FROM now() - prepared)::bigint,
    'ROLLBACK PREPARED ' || quote_literal(gid) || ';'
FROM pg_catalog.pg_prepared_xacts
WHERE now() - prepared > %s * interval '1 second'
ORDER BY 2 DESC LIMIT 3
"""


async def examine_slots(
    connection: PgConnection,
    settings: PostgresSettings,
    pipeline: str,
    *,
    slots_max: int,
    waits_s_max: int,
) -> list[Diagnostic]:
    name = slot_name(settings, pipeline)
    all_slots = await replication_slot.look_at_all(connection)
    ours = next((each for each in all_slots if each.name == name), None)
    database = connection.info.dbname
    reader = reader_name(pipeline)
    found = standbys.about(await standbys.names_of(connection), reader)
    if ours is not None:
        found += _about_our_slot(ours, settings, database, reader=reader)
    else:
        if len(all_slots) >= slots_max:
            found.append(_all_taken(slots_max))
        found += await _about_a_new_slot(connection, settings, waits_s_max)
    for each in all_slots:
        is_orphan = each.name.startswith("headwater_") and each.reader_pid is None
        if is_orphan and each.name != name and each.database == database and not each.is_synced:
            found.append(
                Diagnostic(
                    f"slot {each.name} has no reader, which makes the server keep"
                    f" {(each.retained_bytes or 0) >> 20} MiB of its write-ahead log",
                    f"start its pipeline, or: {drop_sql(each)}",
                    is_fatal=False,
                )
            )
    return found


def _about_our_slot(
    slot: Slot, settings: PostgresSettings, database: str, *, reader: str
) -> Iterator[Diagnostic]:
    drop = drop_sql(slot)
    if (slot.kind, slot.plugin, slot.database) != ("logical", replication_slot.PLUGIN, database):
        yield Diagnostic(
            f"slot {slot.name} is of another kind, plugin or database ({slot.kind},"
            f" {slot.plugin}, {slot.database})",
            f"name another one: `slot.name: ...`, or: {drop}",
        )
        return
    if slot.is_lost:
        why = slot.invalid_because or "it kept more than max_slot_wal_keep_size"
        yield Diagnostic(
            f"the server has invalidated slot {slot.name} ({why}): changes have been missed",
            f"{drop} and write `position_mismatch: resnapshot` into the source",
        )
        return
    if slot.reader_pid is not None and slot.reader_name != reader:
        yield Diagnostic(
            f"slot {slot.name} has another reader: pid {slot.reader_pid}"
            + (f", {slot.reader_name}" if slot.reader_name else ""),
            f"give this pipeline a slot of its own, `slot.name: ...`, or:"
            f" SELECT pg_terminate_backend({slot.reader_pid});",
        )
    if slot.wal_status == "unreserved":
        yield Diagnostic(
            f"slot {slot.name} is about to be invalidated: it needs more than"
            " max_slot_wal_keep_size",
            "run the pipeline now; ALTER SYSTEM SET max_slot_wal_keep_size = -1;"
            " SELECT pg_reload_conf();",
            is_fatal=False,
        )
    limit = settings.slot.max_retained_wal
    if limit is not None and (slot.retained_bytes or 0) > limit:
        yield Diagnostic(
            f"slot {slot.name} makes the server keep {(slot.retained_bytes or 0) >> 20} MiB, more"
            f" than `max_retained_wal`",
            f"run the pipeline, or give the slot up: {drop}",
            is_fatal=False,
        )


def drop_sql(slot: Slot) -> str:
    return f"SELECT pg_drop_replication_slot({literal(slot.name)});"


async def _about_a_new_slot(
    connection: PgConnection, settings: PostgresSettings, waits_s_max: int
) -> list[Diagnostic]:
    found = []
    try:
        replication_slot.wants_failover(settings, connection.info.server_version)
    except HeadwaterError as error:
        found.append(Diagnostic(error.problem, error.hint))
    with in_our_words("the server does not show what it is doing"):
        rows = await (await connection.execute(WAITING, [waits_s_max, waits_s_max])).fetchall()
    for who, seconds, cure in rows:
        found.append(
            Diagnostic(
                f"a transaction has been open for {seconds} s ({who}); the slot cannot be made"
                " before it ends",
                cure,
                is_fatal=False,
            )
        )
    return found


def _all_taken(slots_max: int) -> Diagnostic:
    return Diagnostic(
        f"all {slots_max} replication slots of the server are taken",
        f"ALTER SYSTEM SET max_replication_slots = {slots_max + 10}; then restart the server; or"
        " drop one of: SELECT slot_name FROM pg_replication_slots WHERE NOT active;",
    )


async def examine_position(
    settings: PostgresSettings, pipeline: str, stored: Callable[[], Awaitable[Positions]]
) -> list[Diagnostic]:
    """Returns the problems; changes nothing. `examine` reports an unreachable server, and a slot
    that is not ours or was invalidated."""
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
            return []  # the slot was removed after the snapshot
        if why := await why_lost(line, slot, positions):
            return [_find_lost(settings, slot_lost(why, name, positions))]
        if why := coverage.why_lost(positions, found):
            error = PositionLost(why, publication=publication, hint=LOST_HINT)
            return [_find_lost(settings, error)]
        try:
            async with open_connection(settings) as connection:
                tables = (await look(connection, settings, pipeline)).tables
        except HeadwaterError:
            return []  # `examine` reports the reason
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
    """Checks a slot with our name that our log does not know. A slot that is being created has no
    position yet."""
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
