"""Our source over the same database and history, its changes encoded in each of the modes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.source import PostgresSource
from headwater.connectors.source import Source
from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.model.changes import ChangeBatch, Operation, Positions, TableChanges
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.rows.codec import RowCodec, codec_for
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.loops.ingest.encoder import NEW_KEY_HEADER, OLD_KEY_HEADER, headers_of
from headwater.pipelines.loops.ingest.table_topics import TopicRules
from tests.connectors.postgres.source_session import source_context
from tests.debezium.debezium_capture import PIPELINE
from tests.debezium.events import Event, Told, parsed

WIRES: Mapping[str, Mapping[str, Any]] = {
    "plain": {"decimal": "precise"},
    "strings": {"decimal": "string", "time": "isostring", "binary": "hex"},
    "doubles": {"decimal": "double", "time": "connect", "binary": "base64"},
    "micros": {"decimal": "precise", "time": "microseconds", "binary": "base64-url-safe"},
    "nanos": {"decimal": "precise", "time": "nanoseconds"},
    "adaptive_us": {"decimal": "precise", "time": "adaptive_time_microseconds"},
}
"""By the names of `debezium_capture.MODES`."""
INTERVALS, HSTORES = {"strings": "string"}, {"strings": "map"}
WITH_TRANSACTIONS = {"strings"}
LAST = "zz_end"
REJECTED = "(set aside)"
"""Marks an event whose row the mode cannot express: it becomes a dead letter."""
TOPICS = TopicRules(PIPELINE, "{pipeline}.{schema}.{table}", 1, {})


@dataclass(slots=True)
class Reading:
    """A source that runs; `batches` holds what it has said so far."""

    batches: list[ChangeBatch] = field(default_factory=list)
    streams: asyncio.Event = field(default_factory=asyncio.Event)
    ended: "asyncio.Future[None]" = field(default_factory=asyncio.Future)

    async def streaming(self) -> None:
        """Until all that was there has been read; an error of the source's is raised here."""
        streams: asyncio.Future[Any] = asyncio.ensure_future(self.streams.wait())
        either: list[asyncio.Future[Any]] = [streams, self.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            streams.cancel()
            await self.ended


@asynccontextmanager
async def reading(url: str, mode: str, **more: Any) -> AsyncIterator[Reading]:
    settings = {
        "url": url,
        "tables": ["*"],
        "toast": "placeholder",
        "unknown_types": "skip",
        "interval": INTERVALS.get(mode, "numeric"),
        "hstore": HSTORES.get(mode, "json"),
        "binary": WIRES[mode].get("binary", "bytes"),
        "transactions": mode in WITH_TRANSACTIONS,
        "slot": {"name": f"ours_{mode}"},
        "publication": {"name": "headwater_shop"},
        "heartbeat": 0,
        **more,
    }
    source = PostgresSource(PostgresSettings.model_validate(settings), source_context())
    async with reading_of(source, lambda positions: "stream" in positions) as found:
        yield found


@asynccontextmanager
async def reading_of(
    source: Source, is_streaming: Callable[[Positions], bool]
) -> AsyncIterator[Reading]:
    """`is_streaming`: whether all rows that were there have been read."""
    found = Reading()
    found.ended = asyncio.ensure_future(_read(source, found, is_streaming))
    try:
        yield found
    finally:
        found.ended.cancel()
        await asyncio.wait([found.ended])


async def _read(source: Source, found: Reading, is_streaming: Callable[[Positions], bool]) -> None:
    positions: dict[str, str] = {}
    async with aclosing(source.changes({})) as batches:
        async for batch in batches:
            found.batches.append(batch)
            positions |= batch.positions
            if is_streaming(positions):
                found.streams.set()
            if any(each.schema.table.name == LAST for each in batch.tables):
                return


def told(batches: Sequence[ChangeBatch], mode: str) -> dict[str, Told]:
    wire = WireSettings.model_validate(WIRES[mode])
    framed = wire.model_copy(update={"has_schemas": True})
    found: dict[str, Told] = defaultdict(lambda: Told([], []))
    codecs = _Codecs(wire)
    last: dict[str, TableChanges] = {}
    for batch in batches:
        for changes in batch.tables:
            topic = TOPICS.name_of(changes.schema.table)
            found[topic].events.extend(_events(changes, codecs.of(topic)))
            has_nan = changes.schema != declare_nan_columns(changes.schema)
            if not changes.is_truncate and len(changes) and not has_nan:
                last[topic] = changes
        for notices in batch.notices:
            for key, value in zip(
                notices.keys.to_pylist(), notices.values.to_pylist(), strict=True
            ):
                event = Event(parsed(key.decode()), parsed(value.decode()), {})
                found[f"{PIPELINE}.{notices.kind}"].events.append(event)
    for topic, changes in last.items():
        found[topic].schemas.append(_schemas(changes, codec_for(framed, topic=topic)))
    return dict(found)


@dataclass(frozen=True, slots=True)
class _Codecs:
    """One per topic, as they keep what belongs to the last schema."""

    wire: WireSettings
    made: dict[str, RowCodec] = field(default_factory=dict)

    def of(self, topic: str) -> RowCodec:
        if topic not in self.made:
            self.made[topic] = codec_for(self.wire, topic=topic)
        return self.made[topic]


def _events(changes: TableChanges, codec: RowCodec) -> list[Event]:
    try:
        encoded = codec.encode(changes, now_us=1)
    except RowsRejected:
        if len(changes) == 1:
            return [_set_aside(changes)]
        rows = (changes.slice(place, 1) for place in range(len(changes)))
        return [event for row in rows for event in _events(row, codec)]
    texts = [
        [None if text is None else text.decode() for text in column.to_pylist()]
        for column in (encoded.keys, encoded.values)
    ]
    names = () if changes.is_truncate else (NEW_KEY_HEADER, OLD_KEY_HEADER)
    headers = headers_of(changes, encoded, 1)
    if isinstance(headers, bytes):  # none of them names another key
        names = ()
    columns = {name: header_column(headers, name).to_pylist() for name in names}
    return [
        Event(
            parsed(key),
            parsed(value),
            {
                name: parsed(column[place].decode())
                for name, column in columns.items()
                if column[place] is not None
            },
        )
        for place, (key, value) in enumerate(zip(*texts, strict=True))
    ]


def _set_aside(changes: TableChanges) -> Event:
    """The tables of types have a number for a key."""
    key = {name: changes.rows.column(name)[0].as_py() for name in changes.schema.key}
    letter = "rcud"[changes.operations[0].as_py()]
    name = "txId" if "txId" in changes.source else "gtid"
    xid = changes.source[name]
    number = xid[0].as_py() if isinstance(xid, pa.Array) else xid
    return Event(key, {"op": letter, "source": {name: number}, REJECTED: True}, {})


def _schemas(changes: TableChanges, codec: RowCodec) -> tuple[Any, Any]:
    """Of key and value."""
    bare = replace(
        changes.slice(0, 1),
        rows=changes.rows.slice(0, 1).take(pa.array([None], pa.int32())),
        operations=pa.array([Operation.INSERT], pa.uint8()),
        before=None,
    )
    encoded = codec.encode(bare, now_us=1)
    key = parsed(encoded.keys[0].as_py().decode()) if encoded.keys[0].is_valid else None
    return key and key["schema"], parsed(encoded.values[0].as_py().decode())["schema"]
