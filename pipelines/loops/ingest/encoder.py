"""Encodes changes of tables as record batches per partition: schema, codec, headers,
compression."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError, SourceRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import ChangeBatch, Operation, Positions, Reject, TableChanges
from headwater.core_log.model.column_history import recall_columns
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.partitioner import partitions_of
from headwater.core_log.records.record_headers import encode_header_columns, encode_headers
from headwater.core_log.records.row_writer import RowColumn, RowPart, ValueEncoding, join
from headwater.core_log.rows.codec import (
    AT_HEADER,
    OPERATION_HEADER,
    REREAD,
    SCHEMA_HEADER,
    TRUNCATE_KEY,
    Encoded,
    RowCodec,
    codec_for,
)
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.core_log.rows.settings import WireSettings
from headwater.pipelines.journal.generations import Generations
from headwater.pipelines.journal.schemas import (
    SchemaStore,
    StoredSchema,
    encode_schema,
    schemas_home,
)
from headwater.pipelines.loops.ingest.table_topics import TopicRules, partitions_for
from headwater.pipelines.loops.ingest.unserializable_rows import check_sizes, encode_or_reject
from headwater.pipelines.loops.thread_offload import slices_of, start_work

INCREMENTAL = "incremental"
"""In Debezium's `source.snapshot`, of rows that are read beside the stream."""
PIECE_ROWS_MAX = 4_000
"""Rows of a part, so that the log can work while the rest of a large batch is encoded."""
NEW_KEY_HEADER, OLD_KEY_HEADER = "__debezium.newkey", "__debezium.oldkey"
"""Headers on the two records of a changed key: the key afterwards, and the key before."""


class BeforeLog(Protocol):
    """The pipeline's steps before the log: masks and dropped columns."""

    def apply(self, changes: TableChanges) -> TableChanges: ...

    def follow(self, stored: TableSchema) -> None:
        """Learns the masked columns of a schema in the log, to mask them under other names."""

    def check(self, now: TableSchema, before: TableSchema) -> None:
        """Raises if a new schema could reveal what the former one masked."""

    @property
    def hides_anything(self) -> bool: ...

    def check_renamed(self, now: TableSchema, former: TableSchema, *, is_gone: bool) -> None:
        """Raises if a table could reveal what it masked under another name."""


RowEstimates = Callable[[], Awaitable[Mapping[TableId, int]]]
"""Approximate row counts of the source's tables, as far as known."""


async def nothing_known() -> Mapping[TableId, int]:
    return {}


class PartitionBatch(NamedTuple):
    partition: TopicPartition
    batch: Batch
    is_data: bool = True
    """False for Headwater's own records."""


@dataclass(frozen=True, slots=True)
class _Route:
    topic: str
    partition_count: int
    codec: RowCodec


_Part = asyncio.Future[tuple[list[PartitionBatch], list[Reject]]]


@dataclass(slots=True)
class _Started:
    """Changes of one table that are encoded before their turn."""

    changes: TableChanges
    kept: TableChanges
    """The changes as stored in the log."""
    stored: StoredSchema
    """The schema of `parts`."""
    parts: Sequence[_Part]


class Encoder:
    """Encodes changes, and creates a topic when its table first appears. Lives for one run of
    `ingest`."""

    def __init__(
        self,
        log: Log,
        *,
        topics: TopicRules,
        wire: WireSettings,
        before_log: BeforeLog,
        compression: int,
        row_estimates: RowEstimates = nothing_known,
    ) -> None:
        self._log, self._topics, self._wire = log, topics, wire
        self._row_estimates, self._rows = row_estimates, dict[TableId, int]()
        self._before_log, self._compression = before_log, compression
        self._schemas = SchemaStore(log, topics.pipeline)
        self._routes: dict[TableId, _Route] = {}
        self._owners: dict[str, TableId] = {}
        self._stored: dict[TableId, StoredSchema] = {}
        self._followed: set[TableId] = set()
        self._accepted: dict[TableId, TableSchema] = {}
        """The newest schemas announced to the source as acceptable."""
        self._started = dict[int, _Started]()
        """By the identity of their changes, which are kept until their turn."""
        self.rejects: list[Reject] = []
        """Rejected rows, until the caller takes them."""
        self._turns: dict[str, int] = {}  # of tables without a key, which rotate

    def start_batch(self, batch: ChangeBatch, *, now_ms: int) -> None:
        """Starts to encode a batch while others are appended or committed. A table that is new, or
        has another schema by its turn, is encoded by `encode`."""
        for changes in batch.tables:
            if len(changes) and id(changes) not in self._started:
                self._start(changes, now_ms)

    def _start(self, changes: TableChanges, now_ms: int) -> None:
        stored = self._stored.get(changes.schema.table)
        if stored is None:
            return
        try:
            kept = self._before_log.apply(changes)
        except ConfigError:
            return  # again in its turn, when all masked columns are known
        if stored.schema == recall_columns(declare_nan_columns(kept.schema), stored.schema):
            parts = self._start_parts(self._routes[kept.schema.table], kept, stored, now_ms)
            self._started[id(changes)] = _Started(changes, kept, stored, parts)

    @property
    def topics(self) -> TopicRules:
        return self._topics

    async def newest_form(self, schema: TableSchema) -> TableSchema | None:
        """Returns the last schema of the table's topic, including this transaction's."""
        stored = await self._schemas.newest(self._topics.name_of(schema.table))
        return None if stored is None else stored.schema

    def stored_form(self, schema: TableSchema) -> TableSchema:
        """Returns the schema as stored in the log: masked, without dropped columns."""
        return recall_columns(
            declare_nan_columns(self._before_log.apply(_no_changes(schema)).schema), None
        )

    async def refusal(self, schema: TableSchema, *, is_next: bool = False) -> HeadwaterError | None:
        """Returns why no row of this schema may enter the log. `is_next`: the schema follows those
        asked for before, stored or not."""
        try:
            await self._check_owner(schema.table)
            await self._follow(schema.table)
            before = self._accepted.get(schema.table) if is_next else None
            if before is None:
                before = await self.newest_form(schema)
            if before is not None:
                self._before_log.check(schema, before)
            await self._check_former_names(schema, before)
            form = self.stored_form(schema)
        except ConfigError as error:
            return error
        self._owners.setdefault(self._topics.name_of(schema.table), schema.table)
        if is_next:
            self._accepted[schema.table] = form
            self._before_log.follow(form)
        return None

    async def refusal_of_new(
        self,
        schema: TableSchema,
        *,
        may_be: Callable[[TableId], bool],
        is_gone: Callable[[TableId], bool],
    ) -> HeadwaterError | None:
        """Returns why no row of a new table without an id may enter the log: it may be another one
        under a new name."""
        try:
            await self._check_former_names(schema, None, may_be=may_be, is_gone=is_gone)
        except ConfigError as error:
            return error
        return None

    async def _check_former_names(
        self,
        schema: TableSchema,
        before: TableSchema | None,
        *,
        may_be: Callable[[TableId], bool] = lambda _: False,
        is_gone: Callable[[TableId], bool] = lambda _: False,
    ) -> None:
        is_known = before is not None and schema.id in (0, before.id)
        if is_known or not self._before_log.hides_anything:
            return
        for former in await self._schemas.newest_of_topics():
            if former.table != schema.table and (
                schema.id == former.id if schema.id else may_be(former.table)
            ):
                self._before_log.check_renamed(schema, former, is_gone=is_gone(former.table))

    async def switch(
        self, schema: TableSchema, generations: Generations, *, now_ms: int
    ) -> PartitionBatch:
        """Moves the table's changes to another topic; returns its first schema."""
        await self._follow(schema.table)
        if (before := await self._schemas.newest(self._topics.name_of(schema.table))) is not None:
            self._before_log.check(schema, before.schema)
        former = self._routes.pop(schema.table, None)
        if former is not None:
            self._owners.pop(former.topic, None)
        self._stored.pop(schema.table, None)
        self._topics = replace(self._topics, generations=generations)
        route = await self._route(schema)
        stored, _ = await self._schemas.current(
            route.topic, self.stored_form(schema), self._wire, positions=dict, now_ms=now_ms
        )
        return PartitionBatch(schemas_home(route.topic), encode_schema(stored), is_data=False)

    async def partitions_of(self, schema: TableSchema) -> list[TopicPartition]:
        """Returns the partitions of the table's topic, which is created if missing."""
        route = await self._route(schema)
        return [TopicPartition(route.topic, each) for each in range(route.partition_count)]

    async def encode(
        self, changes: TableChanges, *, now_ms: int, is_from_log: bool = False
    ) -> AsyncGenerator[Sequence[PartitionBatch], None]:
        """Yields batches in the order of their appends; batches of one list may be sent together.
        Rows `is_from_log` are masked already."""
        started = self._started.pop(id(changes), None)
        parts: Sequence[_Part] = () if started is None else started.parts
        try:
            if started is not None:
                kept = started.kept
            else:
                await self._follow(changes.schema.table)
                kept = changes if is_from_log else self._before_log.apply(changes)
            route = await self._route(kept.schema)
            newest = await self._schemas.newest(route.topic)
            before = None if newest is None else newest.schema
            if before is not None:
                _check_key(kept.schema, before, route.topic)
                if started is None and not is_from_log:
                    self._before_log.check(changes.schema, before)
            if started is None and not is_from_log:
                await self._check_former_names(changes.schema, before)
            stored, is_new = await self._schemas.current(
                route.topic,
                recall_columns(declare_nan_columns(kept.schema), before),
                self._wire,
                positions=partial(_positions_of, kept),
                now_ms=now_ms,
            )
            self._stored[kept.schema.table] = stored
            if is_new:
                self._before_log.follow(stored.schema)
                home = schemas_home(route.topic)
                yield [PartitionBatch(home, encode_schema(stored), is_data=False)]
            if started is None or started.stored is not stored:
                await _end(parts)
                parts = self._start_parts(route, kept, stored, now_ms)
            for part in parts:  # the later ones are encoded while the first are appended
                batches, rejects = await part
                self.rejects += rejects
                yield batches
        finally:
            await _end(parts)

    async def _follow(self, table: TableId) -> None:
        if table in self._followed:
            return
        for each in await self._schemas.history(self._topics.name_of(table)):
            self._before_log.follow(each.schema)
        self._followed.add(table)

    async def aclose(self) -> None:
        while self._started:
            _, started = self._started.popitem()
            await _end(started.parts)

    def _start_parts(
        self, route: _Route, changes: TableChanges, stored: StoredSchema, now_ms: int
    ) -> list[_Part]:
        parts = split_batch(changes)
        size = changes.rows.nbytes // len(parts)
        encode = partial(self._encode_part, route, stored, now_ms)
        return [start_work(partial(encode_or_reject, each, encode), size) for each in parts]

    def _encode_part(
        self, route: _Route, stored: StoredSchema, now_ms: int, changes: TableChanges
    ) -> list[PartitionBatch]:
        encoded = route.codec.encode(changes, now_us=now_ms * 1_000)
        check_sizes(encoded, self._compression)
        if changes.is_truncate:
            return self._truncate_markers(route, encoded, changes, stored, now_ms)
        found: list[PartitionBatch] = []
        headers = headers_of(changes, encoded, stored.id)
        for partition, rows in self._spread(route, encoded):
            keys, values, theirs = encoded.keys, encoded.values, headers
            if rows is not None:
                keys, values = keys.take(rows), values.take(rows)
                theirs = theirs if isinstance(theirs, bytes) else theirs.take(rows)
            batches = arrow_codec.encode(
                keys,
                values,
                timestamps_ms=now_ms,
                headers=theirs,
                compression=self._compression,
                laid_out_bytes_max=arrow_codec.LAID_OUT_BYTES_MAX,
            )
            home = TopicPartition(route.topic, partition)
            found += [PartitionBatch(home, batch) for batch in batches]
        return found

    def _spread(
        self, route: _Route, encoded: Encoded
    ) -> Sequence[tuple[int, pa.Int64Array | None]]:
        """Returns partitions with their records; None stands for all records."""
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

    def _truncate_markers(
        self,
        route: _Route,
        encoded: Encoded,
        changes: TableChanges,
        stored: StoredSchema,
        now_ms: int,
    ) -> list[PartitionBatch]:
        """Returns a truncate: a record with a key in every partition, so that compaction keeps the
        newest."""
        headers = encode_header_columns(
            {
                SCHEMA_HEADER: str(stored.id).encode(),
                AT_HEADER: _at(changes),
                OPERATION_HEADER: b"truncate",
            },
            1,
        )
        return [
            PartitionBatch(TopicPartition(route.topic, partition), batch)
            for partition in range(route.partition_count)
            for batch in arrow_codec.encode(
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
            await self._check_owner(schema.table)
            self._owners[topic.name] = schema.table
            count = await self._partitions_of(topic, schema)
            route = _Route(topic.name, count, codec_for(self._wire, topic=topic.name))
            self._routes[schema.table] = route
        return route

    async def _check_owner(self, table: TableId) -> None:
        """Raises ConfigError if the topic is another table's, by this run or an earlier one."""
        topic = self._topics.name_of(table)
        owner = self._owners.get(topic)
        if owner is None and (stored := await self._schemas.newest(topic)) is not None:
            owner = stored.schema.table
        self._topics.check_owner(table, owner)

    async def _partitions_of(self, topic: TopicSettings, schema: TableSchema) -> int:
        """Creates the topic if it is missing; its number of partitions never changes then."""
        if topic.keeps_partitions and not await self._schemas.has(topic.name):
            if schema.table not in self._rows:
                self._rows |= await self._row_estimates()
            rows = self._rows.setdefault(schema.table, 0)
            topic = self._topics.topic_of(schema, partitions=partitions_for(rows))
        await self._log.ensure_topic(topic)
        if topic.keeps_partitions:  # an interrupted run can have created it by another estimate
            return await self._log.partition_count(topic.name)
        return topic.partitions


def _no_changes(schema: TableSchema) -> TableChanges:
    return TableChanges(
        schema=schema,
        rows=pa.RecordBatch.from_pylist([], schema=schema.arrow),
        operations=pa.array([], pa.uint8()),
        source={},
    )


async def _end(parts: Sequence[_Part]) -> None:
    left = [each for each in parts if not each.done() or each.cancelled() or each.exception()]
    await let_go(*left)


def split_batch(changes: TableChanges) -> list[TableChanges]:
    """Splits a large batch into parts of similar size, at least one per core. Each part has a fixed
    cost for the event loop."""
    count = max(slices_of(len(changes)), -(-len(changes) // PIECE_ROWS_MAX))
    size = -(-len(changes) // count)
    starts = [_between_moves(changes, start) for start in range(0, len(changes), size)]
    ends = [*starts[1:], len(changes)]
    return [changes.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]


def _between_moves(changes: TableChanges, start: int) -> int:
    """Returns the index, or the next one if it would separate both halves of a changed key."""
    if changes.moves is None or not start or not changes.moves[start].as_py():
        return start
    return start + int(changes.operations[start].as_py() == Operation.INSERT)


def headers_of(changes: TableChanges, encoded: Encoded, schema_id: int) -> bytes | pa.BinaryArray:
    """Returns the headers of every record, tombstones included; one value if all are equal."""
    at = _at(changes)
    if encoded.changes is not None and isinstance(at, pa.Array):
        at = at.take(encoded.changes)
    further = {**_other_keys(changes, encoded), **changes.headers}
    if encoded.changes is not None:
        further = {name: column.take(encoded.changes) for name, column in further.items()}
    same = {SCHEMA_HEADER: str(schema_id).encode()}
    if _are_rereads(changes):
        same[OPERATION_HEADER] = REREAD
    if isinstance(at, bytes) and not further:
        return encode_headers([*same.items(), (AT_HEADER, at)])
    return encode_header_columns({**same, AT_HEADER: at}, len(encoded.keys), where_valid=further)


def _are_rereads(changes: TableChanges) -> bool:
    """Returns whether the log may already have these rows with equal values."""
    is_beside = changes.source.get("snapshot")
    if not isinstance(is_beside, str) or is_beside != INCREMENTAL:
        return False
    return bool(pc.all(pc.equal(changes.operations, int(Operation.READ))).as_py())


def _other_keys(changes: TableChanges, encoded: Encoded) -> dict[str, pa.BinaryArray]:
    """Returns per change the row's key after, or before, a key change: that of the next or previous
    change."""
    if changes.moves is None:
        return {}
    is_move = changes.moves.to_numpy(zero_copy_only=False)
    is_delete = changes.operations.to_numpy() == Operation.DELETE
    firsts = np.arange(len(changes)) + np.cumsum(is_delete) - is_delete  # tombstones are behind it
    columns = {}
    for name, chosen, step in (
        (NEW_KEY_HEADER, is_move & is_delete, 1),
        (OLD_KEY_HEADER, is_move & ~is_delete, -1),
    ):
        others = np.arange(len(changes)) + step
        others = firsts[others.clip(0, len(changes) - 1)]
        columns[name] = encoded.keys.take(pa.array(others, mask=~chosen))
    return columns


def _check_key(schema: TableSchema, before: TableSchema, topic: str) -> None:
    """Raises before records of another key enter a topic: readers would take two rows for one, or
    one for two."""
    if schema.key != before.key:
        raise SourceRejected(
            "records have another key than those of their topic",
            hint="if the key was altered at the source, its next try reads the table into another"
            " topic; after an edit of the file: headwater run --migrate",
            table=str(schema.table),
            topic=topic,
            key=schema.key,
            stored=before.key,
        )


def _positions_of(changes: TableChanges) -> Positions:
    """Returns the source position of the first change, as in its record."""
    at = _at(changes.slice(0, 1))
    first: bytes = at if isinstance(at, bytes) else at[0].as_py()
    return {AT_HEADER: first.decode()}


def _at(changes: TableChanges) -> pa.BinaryArray | bytes:
    """Returns `<commit>#<index>`, or only the commit if there is no index."""
    if changes.indexes is None:
        if isinstance(changes.commits, pa.Array):
            return changes.commits.cast(pa.binary())
        return str(changes.commits).encode()
    commits: RowPart = (
        RowColumn(changes.commits, ValueEncoding.RAW)
        if isinstance(changes.commits, pa.Array)
        else str(changes.commits).encode()
    )
    indexes = RowColumn(changes.indexes, ValueEncoding.INTEGER)
    return join([commits, b"#", indexes], len(changes), kind=pa.binary())
