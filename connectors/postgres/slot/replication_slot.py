"""The replication slot, which makes the server keep changes until they are read."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from headwater.connectors.postgres.server.connection import (
    EXISTS,
    IN_USE,
    PgConnection,
    in_our_words,
)
from headwater.connectors.postgres.server.lsn import parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.errors import Diagnostic, SourceRejected, SourceUnavailable

PLUGIN = "pgoutput"
WAITED_FOR_SLOT = "slot"
"""Name of the remark while a slot is created."""
NAME_LENGTH_MAX = 63

FAILOVER_SINCE = 17_0000
OPTIONS_IN_BRACKETS_SINCE = 15_0000

LOOK = """
SELECT s.slot_name, s.plugin, s.slot_type, s.database, s.active_pid, s.wal_status,
    s.confirmed_flush_lsn::text, s.restart_lsn::text,
    to_jsonb(s) ->> 'invalidation_reason', to_jsonb(s) ->> 'conflicting',
    coalesce((to_jsonb(s) ->> 'failover')::boolean, false),
    coalesce((to_jsonb(s) ->> 'synced')::boolean, false),
    pg_catalog.pg_wal_lsn_diff(
        CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_lsn() END,
        s.restart_lsn)::bigint,
    a.application_name
FROM pg_catalog.pg_replication_slots s
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
"""
"""Columns of later versions are queried by JSON, in which a missing one is null."""

WAITED_FOR = "SELECT unnest(pg_catalog.pg_blocking_pids(%s))"
"""0 for a prepared transaction, which has no process."""

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""How long the server may need to notice that our predecessor is gone."""

T = TypeVar("T")

WAITING_SECONDS = 1.0
"""Time after which it is looked at who keeps it waiting."""


@dataclass(frozen=True, slots=True)
class Slot:
    name: str
    plugin: str | None
    kind: str
    """`logical` or `physical`."""
    database: str | None
    reader_pid: int | None
    """The server process of the present reader."""
    reader_name: str | None
    """The reader's application name, if our role may see it."""
    wal_status: str | None
    """`reserved`, `extended`, `unreserved` or `lost`."""
    confirmed: int | None
    """Everything below has been confirmed by us, so the server starts no earlier."""
    restart: int | None
    """The server keeps its write-ahead log from here on for us."""
    invalid_because: str | None
    has_failover: bool
    is_synced: bool
    """A copy on a standby, which the primary synchronizes."""
    retained_bytes: int | None

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or self.invalid_because is not None


@dataclass(frozen=True, slots=True)
class CreatedSlot:
    """A new slot; its snapshot is valid as long as the connection that created it stays idle."""

    name: str
    consistent_lsn: int
    """Every transaction is either in the snapshot or streamed from here on."""
    snapshot: str | None


def slot_name(settings: PostgresSettings, pipeline: str) -> str:
    """Returns the slot's name. A slot's name allows few characters: if others were removed, a
    digest keeps names different."""
    if settings.slot.name:
        return settings.slot.name
    name = f"headwater_{pipeline}"
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    if plain == name and len(name) <= NAME_LENGTH_MAX:
        return name
    digest = sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: NAME_LENGTH_MAX - 9]}_{digest}"


def reader_name(pipeline: str) -> str:
    """Returns the application name of our connections in `pg_stat_activity`."""
    return f"headwater {pipeline}"[:NAME_LENGTH_MAX]


async def look(connection: PgConnection, name: str) -> Slot | None:
    found = await _slots(connection, sql.SQL("WHERE s.slot_name = {}").format(sql.Literal(name)))
    return found[0] if found else None


async def look_at_all(connection: PgConnection) -> Sequence[Slot]:
    """Returns every slot of the server, including physical ones and those of other databases."""
    return await _slots(connection, sql.SQL("ORDER BY s.slot_name"))


async def create(
    connection: PgConnection, name: str, *, has_failover: bool = False, exports: bool = True
) -> CreatedSlot:
    """Creates a slot on a replication connection; waits for all running writing transactions.

    With `exports` the connection must stay idle until all readers have taken the snapshot.
    """
    snapshot = "export" if exports else "nothing"
    if connection.info.server_version >= OPTIONS_IN_BRACKETS_SINCE:
        failover = ", FAILOVER" if has_failover else ""
        options = f"(SNAPSHOT '{snapshot}'{failover})"
    else:
        options = "EXPORT_SNAPSHOT" if exports else "NOEXPORT_SNAPSHOT"
    command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput " + options)
    with in_our_words("the slot cannot be made", slot=name):
        cursor = await connection.execute(command.format(sql.Identifier(name)))
        row = await cursor.fetchone()
    assert row is not None, "the server describes the slot that it has made"
    return CreatedSlot(row[0], parse_lsn(row[1]), row[2])


async def waited_for(connection: PgConnection, maker_pid: int) -> Diagnostic | None:
    """Returns what the creation of a slot waits for; `maker_pid` is the server's process that
    creates it."""
    with in_our_words("the server does not show whom the slot waits for"):
        cursor = await connection.execute(WAITED_FOR, [maker_pid])
        pids = [row[0] for row in await cursor.fetchall()]
    if not pids:
        return None
    if not any(pids):
        return Diagnostic(
            "the slot is made once a prepared transaction is over",
            "SELECT gid, prepared FROM pg_prepared_xacts; then COMMIT or ROLLBACK PREPARED",
            is_fatal=False,
        )
    listed = ", ".join(str(pid) for pid in pids if pid)
    return Diagnostic(
        f"the slot is made once transactions are over that are writing now: pid {listed}",
        f"wait, or: SELECT pg_terminate_backend({next(pid for pid in pids if pid)});",
        is_fatal=False,
    )


def wants_failover(
    settings: PostgresSettings, server_version: int, *, is_standby: bool = False
) -> bool:
    """Returns whether standbys should keep a copy of the slot; a slot of a standby has none."""
    if settings.slot.failover == "never" or (is_standby and settings.slot.failover == "auto"):
        return False
    if server_version >= FAILOVER_SINCE:
        return True
    if settings.slot.failover == "always":
        raise SourceRejected(
            "the server cannot keep copies of slots on its standbys",
            version=server_version // 10_000,
            hint="write `failover: auto` under `slot`, or upgrade to PostgreSQL 17",
        )
    return False


async def keep_failover(line: PgConnection, slot: Slot, *, wanted: bool) -> None:
    """Enables copies on standbys for an existing slot, on a replication connection."""
    if slot.has_failover or not wanted:
        return
    command = sql.SQL("ALTER_REPLICATION_SLOT {} (FAILOVER true)")
    with in_our_words("the slot cannot be changed", slot=slot.name):
        await line.execute(command.format(sql.Identifier(slot.name)))


async def once_left(attempt: Callable[[], Awaitable[T]]) -> T:
    """Waits a moment for a reader that has ended, because its slot may still be in use or, if
    temporary, still exist."""
    for pause in PAUSES_SECONDS:
        try:
            return await attempt()
        except (SourceRejected, SourceUnavailable) as error:
            if "pid" not in error.facts and error.facts.get("sqlstate") not in (IN_USE, EXISTS):
                raise
        await asyncio.sleep(pause)
    return await attempt()


async def drop(connection: PgConnection, name: str, *, ends_reader: bool = False) -> bool:
    """Drops the slot; returns whether there was one. `ends_reader` terminates its reader's
    connection, which a role may do to its own."""
    slot = await look(connection, name)
    if slot is None:
        return False
    if slot.reader_pid is not None and not ends_reader:
        raise SourceRejected(
            "another reader streams from the slot",
            slot=name,
            pid=slot.reader_pid,
            reader=slot.reader_name,
            hint="end that reader first; for a pipeline of yours: Ctrl-C in its `headwater run`",
        )
    if slot.reader_pid is not None:
        end = sql.SQL("SELECT pg_catalog.pg_terminate_backend({}, 10000)")
        with in_our_words("the slot's reader cannot be ended", slot=name, pid=slot.reader_pid):
            await connection.execute(end.format(sql.Literal(slot.reader_pid)))
    command = sql.SQL("SELECT pg_catalog.pg_drop_replication_slot({})")
    with in_our_words("the slot cannot be dropped", slot=name):
        try:
            await connection.execute(command.format(sql.Literal(name)))
        except psycopg.errors.UndefinedObject:
            return False  # another process dropped it first
    return True


async def _slots(connection: PgConnection, which: sql.Composable) -> list[Slot]:
    with in_our_words("the server does not show its slots"):
        cursor = await connection.execute(sql.SQL(LOOK) + which)
        rows = await cursor.fetchall()
    return [_slot(row) for row in rows]


def _slot(row: Sequence[object]) -> Slot:
    (
        name, plugin, kind, database, pid, wal_status, confirmed, restart, reason, conflicting,
        has_failover, is_synced, retained, reader,
    ) = row  # fmt: skip
    if reason is None and conflicting == "true":
        reason = "it conflicts with the standby's recovery"
    return Slot(
        name=str(name),
        plugin=_text(plugin),
        kind=str(kind),
        database=_text(database),
        reader_pid=_number(pid),
        reader_name=_text(reader),
        wal_status=_text(wal_status),
        confirmed=None if confirmed is None else parse_lsn(str(confirmed)),
        restart=None if restart is None else parse_lsn(str(restart)),
        invalid_because=_text(reason),
        has_failover=bool(has_failover),
        is_synced=bool(is_synced),
        retained_bytes=_number(retained),
    )


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _number(value: object) -> int | None:
    return None if value is None else int(str(value))


@dataclass(frozen=True, slots=True)
class SlotMaker:
    """Makes the slot, in place of one of its name, and says meanwhile what keeps it waiting. Its
    replication connection stays idle afterwards, for the sake of the slot's snapshot."""

    line: PgConnection
    """A replication connection."""
    connection: PgConnection
    name: str
    say: Callable[[Diagnostic | None], None]
    has_failover: bool
    exports: bool
    """Whether the slot has a snapshot to read rows under."""

    async def make(self) -> CreatedSlot:
        await drop(self.connection, self.name)
        making = create(self.line, self.name, has_failover=self.has_failover, exports=self.exports)
        return await tell_meanwhile(making, self.line, self.connection, self.say)


async def tell_meanwhile(
    making: Coroutine[Any, Any, T],
    line: PgConnection,
    connection: PgConnection,
    say: Callable[[Diagnostic | None], None],
) -> T:
    """Returns what `line` makes, and says meanwhile what keeps the server waiting with the slot."""
    task = asyncio.ensure_future(making)
    try:
        while not (await asyncio.wait([task], timeout=WAITING_SECONDS))[0]:
            say(await waited_for(connection, line.info.backend_pid))
        return task.result()
    finally:
        say(None)
        await let_go(task)
