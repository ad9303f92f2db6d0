"""Signals for pipelines, kept in the log: pauses, restarts, snapshots."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import orjson

from headwater.core_log.foundation.errors import (
    DiskFull,
    LogRejected,
    LogUnavailable,
    check_format,
)
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.pipelines.journal.internal_topics import CONTROL, home_of, internal_topics

if TYPE_CHECKING:
    from headwater.connectors.source import Control
    from headwater.core_log.records.batch_header import Batch
    from headwater.core_log.records.record_views import RecordColumns

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
PAUSE, RESTART, DROPPED = "pause", "restart", "dropped"
DROPPING = "dropping"
"""While `headwater drop` removes the pipeline or the table; it stays if that was broken off."""
VERIFIED = "verified"
"""No signal, but what `verify` has found of a table; it is kept where `status` looks."""
MIGRATE = "migrate"
"""That topics may get new generations, for what its option names."""
RUNTIME = {PAUSE, RESTART, DROPPED, DROPPING, VERIFIED, MIGRATE}
"""Signals that the runtime itself obeys; every other kind is the source's business."""
COMMITS_FROM = "commits_from"
PAUSED, RUNNING = "paused", "running"
WANTED = "wanted"

FOLLOW_WAIT_MS = 5_000
UNREACHABLE_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Signal:
    """A desired state; a later one of the same table and kind takes its place."""

    kind: str
    table: str
    """`schema.table`; empty when the whole pipeline is meant."""
    id: str
    options: Mapping[str, str] = field(default_factory=dict)
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class DesiredTaskState:
    """Everything that is wanted of one pipeline, as of one moment."""

    pipeline: str
    signals: tuple[Signal, ...] = ()
    """In the order of their writing."""
    is_paused: bool = False
    """The whole pipeline; its tables can be paused by themselves as well."""
    paused_tables: frozenset[str] = frozenset()
    commits_from: int = 0
    """Where in its partition of `__headwater_commits` the pipeline begins: below are those of a
    former one of its name, which was dropped."""

    @classmethod
    def of(cls, pipeline: str, signals: Iterable[Signal]) -> "DesiredTaskState":
        signals = tuple(signals)
        paused = {
            signal.table
            for signal in signals
            if signal.kind == PAUSE and signal.options.get(WANTED) == PAUSED
        }
        commits_from = max(
            (int(signal.options[COMMITS_FROM]) for signal in signals if signal.kind == DROPPED),
            default=0,
        )
        return cls(pipeline, signals, "" in paused, frozenset(paused - {""}), commits_from)

    def fresh_start(self, table: str = "") -> str:
        """Names the newest signal that a table, or its pipeline, begin afresh: it was resumed or
        restarted. A reader that knew another one before lifts a quarantine, or restarts."""
        for signal in reversed(self.signals):
            if signal.table in ("", table) and (
                signal.kind == RESTART
                or (signal.kind == PAUSE and signal.options.get(WANTED) == RUNNING)
            ):
                return signal.id
        return ""

    def controls(self) -> "list[Control]":
        """Returns the signals for the source; it remembers as `control/<id>` in its position what
        is done."""
        from headwater.connectors.source import Control
        from headwater.core_log.model.table_schema import TableId

        return [
            Control(
                signal.id,
                signal.kind,
                TableId(*_split(signal.table)) if signal.table else None,
                signal.options,
            )
            for signal in self.signals
            if signal.kind not in RUNTIME
        ]


class DesiredState:
    """The desired state, kept up to date by whoever runs `follow`; reading `now` costs nothing."""

    def __init__(self, log: Log, pipeline: str) -> None:
        self.now = DesiredTaskState(pipeline)
        self._log, self._home = log, control_home(pipeline)
        self._signals: dict[tuple[str, str], Signal] = {}
        self._offset: int | None = None
        self._changed = asyncio.Event()

    async def load(self) -> DesiredTaskState:
        """Everything written until now, what is in open transactions included."""
        try:
            bounds = (await self._log.bounds([self._home]))[self._home]
        except LogRejected:
            return self.now  # the topic is made with the first signal or the first run
        self._offset = max(self._offset or 0, bounds.start)
        while self._offset < bounds.end:
            await self._read(wait_ms=FOLLOW_WAIT_MS)
        return self.now

    async def follow(self) -> None:
        """Runs until it is cancelled. The last state stands while the log is away."""
        while True:
            try:
                if self._offset is None:
                    await self.load()
                if self._offset is None:
                    await asyncio.sleep(UNREACHABLE_PAUSE_S)
                else:
                    await self._read(wait_ms=FOLLOW_WAIT_MS)
            except (LogUnavailable, DiskFull) as error:
                logger.warning("the signals of %s are unknown: %s", self.now.pipeline, error)
                await asyncio.sleep(UNREACHABLE_PAUSE_S)

    async def wait_for_change(self, than: DesiredTaskState) -> DesiredTaskState:
        """Waits, while somebody follows, until something else is wanted than that."""
        while self.now == than:
            self._changed.clear()
            await self._changed.wait()
        return self.now

    async def _read(self, *, wait_ms: int) -> None:
        from headwater.core_log.records import arrow_codec

        assert self._offset is not None, "reading begins where `load` found the start"
        limit = FetchLimit(wait_ms_max=wait_ms)
        wanted = {self._home: self._offset}
        for part in await self._log.fetch(wanted, limit=limit, isolation=Isolation.COMMITTED):
            self._take(
                arrow_codec.decode(part.data, from_offset=self._offset, partition=part.partition)
            )
            self._offset = part.next_offset

    def _take(self, columns: "RecordColumns") -> None:
        before = self.now
        for key, value in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True):
            pipeline, table, kind = orjson.loads(key)
            if pipeline == before.pipeline:
                self._signals.pop((table, kind), None)
                if value is not None:
                    self._signals[table, kind] = _signal(table, kind, value)
        now = DesiredTaskState.of(before.pipeline, self._signals.values())
        if now != before:
            self.now = now
            self._changed.set()


async def read_desired(log: Log, pipeline: str) -> DesiredTaskState:
    return await DesiredState(log, pipeline).load()


async def write_control(log: Log, pipeline: str, signals: Iterable[Signal], *, now_ms: int) -> None:
    """Returns once the signals are on disk."""
    await log.ensure_topic(control_topic())
    for batch in encode_signals(pipeline, signals, now_ms=now_ms):
        await log.append(control_home(pipeline), batch)


async def forget_control(log: Log, pipeline: str, *, now_ms: int, table: str | None = None) -> int:
    """Takes back everything that is wanted, of one table or of all; returns how much that was."""
    signals = [
        signal
        for signal in (await read_desired(log, pipeline)).signals
        if signal.kind not in (DROPPED, DROPPING) and table in (None, signal.table)
    ]
    if signals:
        await _take_back(log, pipeline, signals, now_ms=now_ms)
    return len(signals)


async def begin_drop(log: Log, pipeline: str, table: str = "", *, now_ms: int) -> None:
    """Keeps tasks of the pipeline from beginning, until `end_drop`."""
    await write_control(log, pipeline, [Signal(DROPPING, table, DROPPING)], now_ms=now_ms)


async def end_drop(
    log: Log, pipeline: str, tables: Collection[str] = ("",), *, now_ms: int
) -> None:
    dropped = [Signal(DROPPING, table, DROPPING) for table in tables]
    await _take_back(log, pipeline, dropped, now_ms=now_ms)


async def read_dropping(log: Log, pipeline: str) -> frozenset[str]:
    """Returns the tables whose drop has not ended; an empty name for the whole pipeline."""
    signals = (await read_desired(log, pipeline)).signals
    return frozenset(signal.table for signal in signals if signal.kind == DROPPING)


async def check_not_dropping(log: Log, pipeline: str) -> None:
    """Raises LogRejected while the pipeline, or a table of it, is being dropped: its position may
    be gone, and records of before be there still."""
    for table in sorted(await read_dropping(log, pipeline)):
        what = "a table" if table else "the pipeline"
        raise LogRejected(
            f"{what} is being dropped, or a drop of it was broken off",
            hint=f"end it: headwater drop {f'{pipeline}/{table}' if table else pipeline}",
            pipeline=pipeline,
        )


async def _take_back(log: Log, pipeline: str, signals: Iterable[Signal], *, now_ms: int) -> None:
    keys = [_key(pipeline, signal) for signal in signals]
    for batch in _encode(keys, [None] * len(keys), now_ms=now_ms):
        await log.append(control_home(pipeline), batch)


def pause_signal(*, table: str, is_paused: bool, id: str) -> Signal:
    return Signal(PAUSE, table, id, {WANTED: PAUSED if is_paused else RUNNING})


def control_home(pipeline: str) -> TopicPartition:
    return home_of(CONTROL, pipeline)


def control_topic() -> TopicSettings:
    return next(topic for topic in internal_topics(history_ms=0) if topic.name == CONTROL)


def encode_signals(pipeline: str, signals: Iterable[Signal], *, now_ms: int) -> "list[Batch]":
    chosen = list(signals)
    values: list[bytes | None] = [
        orjson.dumps(
            {
                "version": FORMAT_VERSION,
                "id": signal.id,
                "at_ms": now_ms,
                "options": dict(signal.options),
            }
        )
        for signal in chosen
    ]
    return _encode([_key(pipeline, signal) for signal in chosen], values, now_ms=now_ms)


def _encode(keys: list[bytes], values: list[bytes | None], *, now_ms: int) -> "list[Batch]":
    import pyarrow as pa

    from headwater.core_log.records import arrow_codec

    return arrow_codec.encode(
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), timestamps_ms=now_ms
    )


def _key(pipeline: str, signal: Signal) -> bytes:
    return orjson.dumps([pipeline, signal.table, signal.kind])


def _signal(table: str, kind: str, value: bytes) -> Signal:
    content = orjson.loads(value)
    check_format(content["version"], FORMAT_VERSION, "a signal was written", table=table, kind=kind)
    return Signal(kind, table, content["id"], content["options"], content["at_ms"])


def _split(table: str) -> tuple[str, str]:
    namespace, _, name = table.rpartition(".")
    return namespace, name
