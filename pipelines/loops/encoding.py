"""Changes of tables into record batches per partition: schema, codec, headers, compression."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from core_log import records
from core_log.batch import Batch
from core_log.changes import Operation, Positions, Reject, TableChanges
from core_log.errors import ConfigError
from core_log.joining import Column, Kind, Piece, join
from core_log.log import Log, TopicPartition
from core_log.partitioning import partitions_of
from core_log.record_headers import encode_header_columns
from core_log.rows.codec import (
    AT_HEADER,
    OPERATION_HEADER,
    SCHEMA_HEADER,
    TRUNCATE_KEY,
    Encoded,
    RowCodec,
)
from core_log.rows.codecs import codec_for
from core_log.rows.settings import WireSettings
from core_log.table_schema import TableId, TableSchema
from pipelines.journal.schemas import SchemaBook, StoredSchema, encode_schema, schemas_home
from pipelines.loops.busy_work import beside, pieces_of
from pipelines.loops.inexpressible import encoded_or_set_aside, sized
from pipelines.loops.topics import TopicRules

PIECE_ROWS_MAX = 8_000
"""So that the log has something to do while most of a large batch is still encoded."""
NEW_KEY_HEADER, OLD_KEY_HEADER = "__debezium.newkey", "__debezium.oldkey"
"""Of the two records of a changed key: what the key is afterwards, and what it was before."""


class BeforeLog(Protocol):
    """What a pipeline does to rows before they enter the log: masks and dropped columns."""

    def apply(self, changes: TableChanges) -> TableChanges: ...


class Portion(NamedTuple):
    """A batch for one partition."""

    partition: TopicPartition
    batch: Batch
    is_data: bool = True
    """False for what Headwater writes for itself."""


@dataclass(frozen=True, slots=True)
class _Route:
    """What has been settled for one table."""

    topic: str
    partition_count: int
    codec: RowCodec


class Encoder:
    """Creates topics when their tables are first seen. Lives as long as one run of `ingest`."""

    def __init__(
        self,
        log: Log,
        *,
        topics: TopicRules,
        wire: WireSettings,
        before_log: BeforeLog,
        compression: int,
    ) -> None:
        self._log, self._topics, self._wire = log, topics, wire
        self._before_log, self._compression = before_log, compression
        self._book = SchemaBook(log, topics.pipeline)
        self._routes: dict[TableId, _Route] = {}
        self._owners: dict[str, TableId] = {}
        self.rejects: list[Reject] = []
        """Rows that were set aside, until who encodes them takes them."""
        self._turns: dict[str, int] = {}  # of tables without a key, which go round

    async def encode(
        self, changes: TableChanges, *, positions: Positions, now_ms: int
    ) -> AsyncIterator[Portion]:
        """In the order in which the batches have to be appended."""
        changes = self._before_log.apply(changes)
        route = await self._route(changes.schema)
        stored, is_new = await self._book.current(
            route.topic, changes.schema, self._wire, positions=positions, now_ms=now_ms
        )
        if is_new:
            for batch in encode_schema(stored):
                yield Portion(schemas_home(route.topic), batch, is_data=False)
        makings = [
            asyncio.ensure_future(
                beside(partial(self._portions, route, each, stored, now_ms), each.rows.nbytes)
            )
            for each in divided(changes)
        ]
        try:
            for making in makings:  # the later ones are made while the first are appended
                for portion in await making:
                    yield portion
        finally:
            for making in makings:
                making.cancel()
            await asyncio.gather(*makings, return_exceptions=True)

    def _portions(
        self, route: _Route, changes: TableChanges, stored: StoredSchema, now_ms: int
    ) -> list[Portion]:
        changes, encoded, rejects = encoded_or_set_aside(
            changes,
            sized(
                partial(route.codec.encode, now_us=now_ms * 1_000), compression=self._compression
            ),
        )
        self.rejects += rejects
        if encoded is None:
            return []
        if changes.is_truncate:
            return self._marker(route, encoded, changes, stored, now_ms)
        portions: list[Portion] = []
        headers = headers_of(changes, encoded, stored.id)
        for partition, rows in self._spread(route, encoded):
            keys, values, theirs = encoded.keys, encoded.values, headers
            if rows is not None:
                keys, values, theirs = keys.take(rows), values.take(rows), theirs.take(rows)
            batches = records.encode(
                keys, values, timestamps_ms=now_ms, headers=theirs, compression=self._compression
            )
            home = TopicPartition(route.topic, partition)
            portions += [Portion(home, batch) for batch in batches]
        return portions

    def _spread(
        self, route: _Route, encoded: Encoded
    ) -> Sequence[tuple[int, pa.Int64Array | None]]:
        """Partitions and the records that belong there; None for all of them."""
        if route.partition_count == 1:
            return [(0, None)]
        if encoded.keys.null_count:
            turn = self._turns.get(route.topic, 0)
            self._turns[route.topic] = turn + 1
            return [(turn % route.partition_count, None)]
        places = partitions_of(encoded.keys, route.partition_count)
        order = np.argsort(places, kind="stable")
        ends = np.searchsorted(places[order], np.arange(route.partition_count + 1))
        return [
            (partition, pa.array(order[ends[partition] : ends[partition + 1]]))
            for partition in range(route.partition_count)
            if ends[partition] < ends[partition + 1]
        ]

    def _marker(
        self,
        route: _Route,
        encoded: Encoded,
        changes: TableChanges,
        stored: StoredSchema,
        now_ms: int,
    ) -> list[Portion]:
        """A truncate is a keyed record in every partition, so that compaction keeps the newest."""
        headers = encode_header_columns(
            {
                SCHEMA_HEADER: str(stored.id).encode(),
                AT_HEADER: _at(changes),
                OPERATION_HEADER: b"truncate",
            },
            1,
        )
        return [
            Portion(TopicPartition(route.topic, partition), batch)
            for partition in range(route.partition_count)
            for batch in records.encode(
                pa.array([TRUNCATE_KEY], pa.binary()),
                encoded.values,
                timestamps_ms=now_ms,
                headers=headers,
                compression=self._compression,
            )
        ]

    async def _route(self, schema: TableSchema) -> _Route:
        route = self._routes.get(schema.table)
        if route is None:
            topic = self._topics.topic_of(schema)
            owner = self._owners.setdefault(topic.name, schema.table)
            if owner != schema.table:
                raise ConfigError(
                    "two tables would share one topic, since topics allow fewer characters",
                    hint="capture only one of them, or give log.topic another form",
                    topic=topic.name,
                    tables=[str(owner), str(schema.table)],
                )
            await self._log.ensure_topic(topic)
            route = _Route(topic.name, topic.partitions, codec_for(self._wire, topic=topic.name))
            self._routes[schema.table] = route
        return route


def divided(changes: TableChanges) -> list[TableChanges]:
    """Pieces of a large batch, at least as many as there are cores to encode them side by side."""
    size = min(-(-len(changes) // pieces_of(len(changes))), PIECE_ROWS_MAX)
    starts = [_between_moves(changes, start) for start in range(0, len(changes), size)]
    ends = [*starts[1:], len(changes)]
    return [changes.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _between_moves(changes: TableChanges, start: int) -> int:
    """The same place, or the one behind it where both halves of a changed key lie around it."""
    if changes.moves is None or not start or not changes.moves[start].as_py():
        return start
    return start + int(changes.operations[start].as_py() == Operation.INSERT)


def headers_of(changes: TableChanges, encoded: Encoded, schema_id: int) -> pa.BinaryArray:
    """The headers that every record carries, tombstones as well."""
    at = _at(changes)
    if encoded.changes is not None and isinstance(at, pa.Array):
        at = at.take(encoded.changes)
    further = {**_other_keys(changes, encoded), **changes.headers}
    if encoded.changes is not None:
        further = {name: column.take(encoded.changes) for name, column in further.items()}
    return encode_header_columns(
        {SCHEMA_HEADER: str(schema_id).encode(), AT_HEADER: at},
        len(encoded.keys),
        where_valid=further,
    )


def _other_keys(changes: TableChanges, encoded: Encoded) -> dict[str, pa.BinaryArray]:
    """Per change the key that its row has after a change of key, or had before it: that of the
    change behind or before this one."""
    if changes.moves is None:
        return {}
    is_move = changes.moves.to_numpy(zero_copy_only=False)
    is_delete = changes.operations.to_numpy() == Operation.DELETE
    firsts = np.arange(len(changes)) + np.cumsum(is_delete) - is_delete  # behind are tombstones
    columns = {}
    for name, chosen, step in (
        (NEW_KEY_HEADER, is_move & is_delete, 1),
        (OLD_KEY_HEADER, is_move & ~is_delete, -1),
    ):
        others = np.arange(len(changes)) + step
        others = firsts[others.clip(0, len(changes) - 1)]
        columns[name] = encoded.keys.take(pa.array(others, mask=~chosen))
    return columns


def _at(changes: TableChanges) -> pa.BinaryArray | bytes:
    """`<commit>#<index>`, or the commit alone where nobody counts."""
    if changes.indexes is None:
        if isinstance(changes.commits, pa.Array):
            return changes.commits.cast(pa.binary())
        return str(changes.commits).encode()
    commits: Piece = (
        Column(changes.commits, Kind.RAW)
        if isinstance(changes.commits, pa.Array)
        else str(changes.commits).encode()
    )
    indexes = Column(changes.indexes, Kind.INTEGER)
    return join([commits, b"#", indexes], len(changes), kind=pa.binary())
