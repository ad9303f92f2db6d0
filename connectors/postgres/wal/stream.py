"""The stream of a replication slot: reads WAL batches, and confirms positions."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from struct import Struct
from typing import Any

import numpy as np

from headwater.connectors.postgres.server.connection import (
    NO_ENCODING,
    NOT_IN_ENCODING,
    PASSING,
    SPEAKING,
    PgConnection,
    has_no_encoding,
    in_our_words,
    not_utf8,
)
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.types.datetime import EPOCH_US
from headwater.connectors.postgres.wal.kernels import SLACK_BYTES, Kernels, chosen_kernels
from headwater.connectors.postgres.wal.pgoutput import BatchEnd, PgoutputDecoder
from headwater.connectors.postgres.wal.transport import LOST, ReadBatching, Transport, open_line
from headwater.connectors.postgres.wal.wal_batch import WalBatch
from headwater.core_log.foundation.array_types import UInt8Array
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import HeadwaterError, SourceRejected, SourceUnavailable

ANSWER_SECONDS = 0.01
"""Shortest time between two confirmations that are sent."""
SHARE_OF_TIMEOUT = 3
STATUS_SECONDS_MAX, STATUS_SECONDS_MIN = 10.0, 0.1
TIMES_OF_TIMEOUT = 2
"""A server that is silent for longer, in spite of a request, would have closed the connection."""
SILENT_SECONDS_MAX = 600.0

_STATUS, _BOTH_HEAD = Struct(">cqqqqB"), Struct(">cI")
MISSING = "42704"
TIMEOUT_MS_UNKNOWN = 60_000
ORIGIN_SINCE = 16_0000


class WalStream:
    """One running START_REPLICATION, which owns its connection.

    A timer sends our position to the server, so that it keeps the connection even while no WAL
    batch is read.
    """

    def __init__(
        self,
        connection: PgConnection,
        line: Transport,
        clock: Clock,
        *,
        start_at: int,
        receive_bytes: int,
        timeout_ms: int,
        kernels: Kernels,
    ) -> None:
        """`timeout_ms`: how long the server waits for us; 0 means for ever."""
        self._connection, self._line, self._clock = connection, line, clock
        self._loop = asyncio.get_running_loop()
        self._receive_bytes = receive_bytes
        seconds = (timeout_ms or TIMEOUT_MS_UNKNOWN) / 1_000
        self._status_seconds = min(
            STATUS_SECONDS_MAX, max(STATUS_SECONDS_MIN, seconds / SHARE_OF_TIMEOUT)
        )
        self._silent_seconds = seconds * TIMES_OF_TIMEOUT if timeout_ms else SILENT_SECONDS_MAX
        self._has_heard = True
        self._decoder = PgoutputDecoder(kernels)
        self._buffer, self._filled = _buffer_of(receive_bytes), 0
        self._confirmed = start_at
        self._reached = start_at
        self._is_started = line.name == "libpq"
        self._failure: HeadwaterError | None = None
        self._answer: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(self._status_seconds, self._tick)
        self._answer_soon()  # before it, the server does not show whether a commit waits for us

    @classmethod
    async def start(
        cls,
        connection: PgConnection,
        clock: Clock,
        *,
        slot: str,
        publications: Sequence[str],
        start_at: int,
        receive_bytes: int,
        has_messages: bool = True,
        origin: str = "any",
        kernels: Kernels | None = None,
    ) -> "WalStream":
        """Starts on a connection with `replication=True`, from `start_at` on, or from the slot's
        position if that is later. The server's refusal may come out of `wal_batches` only."""
        command = start_command(
            slot=slot,
            publications=publications,
            start_at=start_at,
            has_messages=has_messages,
            origin=origin,
        )
        async with AsyncExitStack() as closing:
            closing.push_async_callback(connection.close)
            timeout_ms = await timeout_ms_of(connection)
            if has_no_encoding(connection):
                await take_bytes_as_they_are(connection)
            line = await open_line(connection, command)
            closing.pop_all()
        return cls(
            connection,
            line,
            clock,
            start_at=start_at,
            receive_bytes=receive_bytes,
            timeout_ms=timeout_ms,
            kernels=kernels or chosen_kernels(),
        )

    @property
    def way(self) -> str:
        """Returns `socket`, or `libpq`, which is slower."""
        return self._line.name

    async def wal_batches(self) -> AsyncGenerator[WalBatch, None]:
        """Yields WAL batches; ends only by an error. A batch without events moves the position
        only."""
        pacing = ReadBatching(now=self._loop.time(), pause_seconds=self._line.pause_seconds)
        while True:
            await self._gather(pacing)
            pacing.handed_on()
            wal_batch = self._decoder.decode(self._buffer, may_cut=self._is_full)
            self._drop(self._decoder.bytes_used)
            if wal_batch is not None and self._says_something(wal_batch):
                yield wal_batch
            elif self._decoder.ending is not None and not self._decoder.has_whole:
                raise refusal(self._decoder.ending)

    def confirm(self, lsn: int) -> None:
        """Confirms that all below is durable; the server may forget it."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            self._answer_soon()

    def ask(self) -> None:
        """Requests a keepalive, so that a WAL batch with the server's position follows soon."""
        self._send_status(wants_answer=True)

    async def close(self) -> None:
        """Closes the connection as well, which frees the slot a moment later."""
        self._timer.cancel()
        if self._answer is not None:
            self._answer.cancel()
        self._line.close()
        await self._connection.close()

    async def _gather(self, pacing: ReadBatching) -> None:
        """Reads until there is a WAL batch and no reason to wait for more of it."""
        while not self._can_hand_on:
            if self._failure is not None:
                raise self._failure
            self._make_room()
            self._note(await self._receive(), pacing)
            while True:
                while not self._is_full and (count := self._line.take(self._space)):
                    self._note(count, pacing)
                seconds = 0.0 if self._is_full else pacing.pause(now=self._loop.time())
                if not seconds:
                    break
                await asyncio.sleep(seconds)
            self._look()

    async def _receive(self) -> int:
        """Receives bytes. A connection may fail silently, so a long silence counts as its end."""
        try:
            async with asyncio.timeout(self._silent_seconds):
                return await self._line.receive(self._space)
        except TimeoutError:
            raise SourceUnavailable(
                "the server has stopped answering", seconds=self._silent_seconds
            ) from None

    @property
    def _can_hand_on(self) -> bool:
        decoder = self._decoder
        return decoder.has_whole or decoder.ending is not None or self._is_stuck

    @property
    def _is_full(self) -> bool:
        return self._filled >= len(self._buffer) - SLACK_BYTES

    @property
    def _is_stuck(self) -> bool:
        """Whether the buffer is full of one open transaction."""
        return self._is_full and self._decoder.has_any

    @property
    def _capacity(self) -> int:
        return len(self._buffer) - SLACK_BYTES

    @property
    def _space(self) -> memoryview:
        return self._buffer.data[self._filled : self._capacity]

    def _note(self, count: int, pacing: ReadBatching) -> None:
        self._filled += count
        self._has_heard = True
        pacing.note_bytes(count, now=self._loop.time())

    def _look(self) -> None:
        if not self._is_started and not self._skip_start():
            return
        self._decoder.look(self._buffer, self._filled)

    def _skip_start(self) -> bool:
        """Removes the frame that starts the stream, and the frames before it."""
        while self._filled >= _BOTH_HEAD.size:
            letter, length = _BOTH_HEAD.unpack_from(self._buffer.data)
            if letter not in (b"W", b"N", b"S"):
                self._is_started = True  # an error, which the decoder finds
                return True
            if self._filled < 1 + length:
                return False
            self._drop(1 + length)
            if letter == b"W":
                self._is_started = True
                return True
        return False

    def _drop(self, used: int) -> None:
        if not used:
            return
        rest = self._buffer[used : self._filled].copy()
        if len(self._buffer) > self._receive_bytes + SLACK_BYTES > len(rest):
            self._buffer = _buffer_of(self._receive_bytes)  # a very large message is complete
        self._filled = len(rest)
        self._buffer[: self._filled] = rest

    def _make_room(self) -> None:
        """Grows the buffer for a single message that is larger."""
        if self._is_full:
            larger = _buffer_of(max(self._decoder.bytes_wanted, 2 * self._capacity))
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger

    def _says_something(self, wal_batch: WalBatch) -> bool:
        if wal_batch.is_wanted:
            self._answer_soon()
        moves = wal_batch.position is not None and wal_batch.position > self._reached
        if wal_batch.position is not None:
            self._reached = max(self._reached, wal_batch.position)
        return (
            bool(wal_batch.events)
            or len(wal_batch.transactions.xids) > 0
            or moves
            or wal_batch.is_wanted
        )

    def _answer_soon(self) -> None:
        if self._answer is None:
            self._answer = self._loop.call_later(ANSWER_SECONDS, self._send_status)

    def _tick(self) -> None:
        self._send_status(wants_answer=not self._has_heard)
        self._has_heard = False
        self._timer = self._loop.call_later(self._status_seconds, self._tick)

    def _send_status(self, *, wants_answer: bool = False) -> None:
        if self._answer is not None:
            self._answer.cancel()
            self._answer = None
        now_us = self._clock.now_ms() * 1_000 - EPOCH_US
        places = (self._confirmed,) * 3  # written, flushed and applied
        try:
            self._line.send(_STATUS.pack(b"r", *places, now_us, wants_answer))
        except HeadwaterError as error:
            self._failure = error


def _buffer_of(capacity: int) -> UInt8Array:
    return np.zeros(capacity + SLACK_BYTES, np.uint8)


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
