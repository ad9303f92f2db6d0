"""Whether the stream can go on where our position says, and in words why not."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from headwater.connectors.postgres.server.connection import PgConnection, in_our_words
from headwater.connectors.postgres.server.lsn import lsn_text, parse_lsn
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.slot.replication_slot import PLUGIN, Slot, look
from headwater.core_log.foundation.errors import (
    DecodeError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)
from headwater.core_log.model.changes import Positions

STREAM, SERVER = "stream", "server"
"""Parts of the position: an LSN, and which server on which timeline it is of."""

LOST_HINT = (
    "changes have been missed. To read all rows again: write `position_mismatch: resnapshot` into"
    " the source and run again; tables are emptied first"
)


@dataclass(frozen=True, slots=True)
class ServerState:
    system_id: str
    """Made up by initdb; copies and standbys share it."""
    timeline: int
    """Raised by every promotion and every restore of a backup."""
    wal_end: int
    """Everything below is on the server's disk."""
    version: int
    """As 170004."""
    database: str
    is_standby: bool

    @property
    def part(self) -> str:
        """What stands in the position."""
        return f"{self.system_id}/{self.timeline}"


@dataclass(frozen=True, slots=True)
class ResumeCheck:
    server: ServerState
    slot: Slot | None
    start: int | None
    """Where the stream goes on. None: the slot is to be made anew (the old one, if any, dropped)
    and all rows to be read."""
    lost: str = ""
    """Where the stream cannot go on and the file says that all rows are to be read again: why.
    What was deleted in between was never seen, so tables are to be emptied first."""


async def identify(connection: PgConnection) -> ServerState:
    """On a replication connection."""
    with in_our_words("the server does not say who it is"):
        cursor = await connection.execute("IDENTIFY_SYSTEM")
        row = await cursor.fetchone()
        cursor = await connection.execute("SELECT pg_catalog.pg_is_in_recovery()")
        recovery = await cursor.fetchone()
    assert row is not None and recovery is not None, "both questions have one row as an answer"
    return ServerState(
        system_id=str(row[0]),
        timeline=int(row[1]),
        wal_end=parse_lsn(row[2]),
        version=connection.info.server_version,
        database=str(row[3]),
        is_standby=bool(recovery[0]),
    )


async def stand(
    connection: PgConnection, settings: PostgresSettings, name: str, resume_from: Positions
) -> ResumeCheck:
    """Looks at the slot `name` over a replication connection; changes nothing.

    Raises `PositionLost` where changes have been missed and the file does not say what then, and
    `SourceUnavailable` while somebody else streams from the slot.
    """
    server = await identify(connection)
    slot = await look(connection, name)
    if slot is not None:
        check_usable(slot, server)
    standing = judge(
        server,
        slot,
        resume_from,
        switches=await _switches(connection, server, resume_from),
        is_given=bool(settings.slot.name),
    )
    if standing.lost and not may_begin_again(settings):
        raise slot_lost(standing.lost, name, resume_from)
    return standing


def slot_lost(why: str, name: str, resume_from: Positions) -> PositionLost:
    return PositionLost(why, slot=name, position=resume_from.get(STREAM), hint=LOST_HINT)


async def why_lost(connection: PgConnection, slot: Slot | None, resume_from: Positions) -> str:
    """The same judgement for who only looks on, over a replication connection, of a slot that was
    looked at before the position: the source may be running meanwhile."""
    server = await identify(connection)
    switches = await _switches(connection, server, resume_from)
    return judge(server, slot, resume_from, switches=switches, is_given=False).lost


def may_begin_again(settings: PostgresSettings) -> bool:
    return settings.position_mismatch == "resnapshot" or settings.snapshot.mode == "when_needed"


def judge(
    server: ServerState,
    slot: Slot | None,
    resume_from: Positions,
    *,
    switches: Mapping[int, int],
    is_given: bool,
) -> ResumeCheck:
    """`switches`: earlier timelines of the server to where it left them.

    A stored position ahead of the slot is what a crash before the confirmation leaves; one behind
    it is never ours, as nothing is confirmed that was not stored first.
    """
    if STREAM not in resume_from:
        return _without_position(server, slot, is_given=is_given)
    stored = parse_lsn(resume_from[STREAM])
    why = (
        _why_the_slot_is_lost(slot)
        or _why_the_server_is_another(server, resume_from, stored, switches)
        or _why_the_places_differ(server, slot, stored)
    )
    return ResumeCheck(server, slot, None if why else stored, why)


def _why_the_slot_is_lost(slot: Slot | None) -> str:
    if slot is None:
        return "the replication slot is gone"
    if slot.is_lost:
        why = slot.invalid_because or "it kept more than max_slot_wal_keep_size"
        return f"the server has invalidated the replication slot ({why})"
    return ""


def _why_the_server_is_another(
    server: ServerState, resume_from: Positions, stored: int, switches: Mapping[int, int]
) -> str:
    system_id, timeline = _server_of(resume_from, server)
    if system_id != server.system_id:
        return (
            "this is another server than the one that our position is of: its system identifier is"
            f" {server.system_id}, not {system_id}"
        )
    if timeline == server.timeline:
        return ""
    left = switches.get(timeline)
    if left is None:
        return (
            f"the server is on timeline {server.timeline}, which does not come from timeline"
            f" {timeline} of our position"
        )
    if stored > left:
        return (
            f"the server left timeline {timeline} at {lsn_text(left)}, before our position: what we"
            " have read beyond never happened on this server"
        )
    return ""


def _why_the_places_differ(server: ServerState, slot: Slot | None, stored: int) -> str:
    if stored > server.wal_end:
        return (
            f"the server's write-ahead log ends at {lsn_text(server.wal_end)}, before our position:"
            " it was restored from an older copy"
        )
    if slot is not None and slot.confirmed is not None and slot.confirmed > stored:
        return (
            f"the slot stands at {lsn_text(slot.confirmed)}, beyond our position: somebody else has"
            " read from it, or made it anew"
        )
    return ""


def _server_of(resume_from: Positions, server: ServerState) -> tuple[str, int]:
    """A position set by hand may leave the server out."""
    text = resume_from.get(SERVER, server.part)
    system_id, _, timeline = text.partition("/")
    if not timeline.isdigit():
        raise DecodeError("this is no server of a position, as SYSTEM/TIMELINE", found=text)
    return system_id, int(timeline)


def check_usable(slot: Slot, server: ServerState) -> None:
    """Raises when the slot is none of ours, or not free."""
    if slot.kind != "logical" or slot.plugin != PLUGIN or slot.database != server.database:
        raise SourceRejected(
            "the slot is of another kind, plugin or database",
            slot=slot.name,
            kind=slot.kind,
            plugin=slot.plugin,
            database=slot.database,
            hint="name another one: `slot.name: ...`",
        )
    if slot.is_synced and server.is_standby:
        raise SourceUnavailable(
            "the server is a standby, which keeps a copy of the slot for when it is promoted",
            slot=slot.name,
            hint="let `url` name the primary: several hosts and target_session_attrs=primary",
        )
    if slot.reader_pid is not None:
        raise SourceUnavailable(
            "somebody else streams from the slot",
            slot=slot.name,
            pid=slot.reader_pid,
            reader=slot.reader_name,
            hint="end the other reader, or give this pipeline its own slot: `slot.name: ...`",
        )


def _without_position(server: ServerState, slot: Slot | None, *, is_given: bool) -> ResumeCheck:
    """A slot of our own name without a position is what a crash left before the first commit."""
    if slot is None or not is_given:
        return ResumeCheck(server, slot, None)
    why = _why_the_slot_is_lost(slot)
    return ResumeCheck(server, slot, None if why else slot.confirmed, why)


async def _switches(
    connection: PgConnection, server: ServerState, resume_from: Positions
) -> Mapping[int, int]:
    """Asked only where the timeline is another one now."""
    _, timeline = _server_of(resume_from, server)
    if server.timeline == 1 or timeline == server.timeline:
        return {}
    command = sql.SQL("TIMELINE_HISTORY {}").format(sql.Literal(server.timeline))
    with in_our_words("the server does not tell the history of its timeline"):
        cursor = await connection.execute(command)
        row = await cursor.fetchone()
    assert row is not None, "a timeline that was switched to has a history"
    text = row[1].decode() if isinstance(row[1], bytes) else str(row[1])
    return switches_in(text)


def switches_in(history: str) -> dict[int, int]:
    """Of a timeline's history file: each earlier timeline, and where it was left."""
    found = re.findall(r"^\s*(\d+)\s+([0-9A-Fa-f]+/[0-9A-Fa-f]+)", history, re.MULTILINE)
    return {int(timeline): parse_lsn(place) for timeline, place in found}
