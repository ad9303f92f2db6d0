"""The options with which a stream starts, and the meaning of the server's last frame."""

import re
from collections.abc import Sequence
from typing import Any

from headwater.connectors.postgres.server.connection import (
    NO_ENCODING,
    NOT_IN_ENCODING,
    PASSING,
    SPEAKING,
    PgConnection,
    in_our_words,
    not_utf8,
)
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.wal.pgoutput import BatchEnd
from headwater.connectors.postgres.wal.transport import LOST
from headwater.core_log.foundation.errors import HeadwaterError, SourceRejected, SourceUnavailable

MISSING = "42704"
TIMEOUT_MS_UNKNOWN = 60_000
ORIGIN_SINCE = 16_0000


def start_command(
    *,
    slot: str,
    publications: Sequence[str],
    start_at: int,
    has_messages: bool,
    origin: str,
) -> bytes:
    names = ",".join('"' + each.replace('"', '""') + '"' for each in publications)
    options = {"proto_version": "1", "publication_names": names}
    if has_messages:
        options["messages"] = "true"
    if origin != "any":
        options["origin"] = origin
    quoted = {key: value.replace("'", "''") for key, value in options.items()}
    written = ", ".join(f"{key} '{value}'" for key, value in quoted.items())
    return (f'START_REPLICATION SLOT "{slot}" LOGICAL {lsn_text(start_at)} ({written})').encode()


def check_origin(origin: str, server_version: int) -> None:
    """Raises `SourceRejected` if the server cannot leave out changes that it received by
    replication."""
    if origin != "any" and server_version < ORIGIN_SINCE:
        raise SourceRejected(
            "the server cannot leave out changes that it received by replication",
            version=server_version // 10_000,
            hint="set `origin: any` in the source, or upgrade to PostgreSQL 16",
        )


async def timeout_ms_of(connection: PgConnection) -> int:
    """Returns how long the server waits for our answer; 0 means for ever."""
    with in_our_words("the server does not say how long it waits for an answer"):
        cursor = await connection.execute(
            "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"
        )
        row = await cursor.fetchone()
    return int(row[0]) if row else TIMEOUT_MS_UNKNOWN


async def take_bytes_as_they_are(connection: PgConnection) -> None:
    """Sets the encoding so that bytes are not converted; later queries on the connection must not
    return text."""
    with in_our_words("the server does not say that it sends bytes as they are"):
        await connection.execute(f"SET client_encoding TO '{NO_ENCODING}'".encode())


def refusal(ending: BatchEnd) -> HeadwaterError:
    """Returns the error of the server's last frame, with its message only if it cannot quote a
    row."""
    if ending.letter != "E":
        return SourceUnavailable(LOST)
    pieces = ending.content.split(b"\0")
    fields = {piece[:1]: piece[1:].decode(errors="replace") for piece in pieces}
    state = fields.get(b"C", "")
    facts: dict[str, Any] = {"sqlstate": state}
    if state in NOT_IN_ENCODING:
        if place := re.search(r"[0-9A-F]+/[0-9A-F]+", fields.get(b"W", "")):
            facts["position"] = place[0]
        return not_utf8("the server does not stream", **facts)
    if state[:2] in SPEAKING:
        facts["why"] = fields.get(b"M", "")
    if state == MISSING:  # the position decides about the missed changes
        facts["hint"] = "none is needed: the source looks at its publication and its slot again"
        return SourceUnavailable("the publication or the slot is gone", **facts)
    if state[:2] in PASSING or not state:
        return SourceUnavailable("the server ended the stream", **facts)
    return SourceRejected("the server does not stream", **facts)
