"""One key in the log, found by its record bytes in the only partition that it can be in; and what
records say about keys."""

import base64
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import time
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import OP_CODES, Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records.murmur2 import partition_of
from headwater.core_log.records.record_headers import header_column
from headwater.core_log.records.record_views import RecordColumns, RecordScratch, locate
from headwater.core_log.rows.codec import AT_HEADER, TRUNCATE_KEY, codec_for
from headwater.pipelines.journal.inventory import schemas_of
from headwater.pipelines.journal.schemas import StoredSchema, read_schemas, schemas_home
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.loops.deliver.truncate_barriers import batches_with
from headwater.pipelines.terminal.control_writer import find_table
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.terminal.record_lines import BASE64, to_json_value
from headwater.pipelines.time_travel.history.commit_index import CommitIndex
from headwater.pipelines.time_travel.history.cut_points import CutPoint, check_exact

WINDOW_OFFSETS = 100_000
"""How much is searched at first, from the end, for the newest record of a key."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One change of the key."""

    topic: str
    partition: int
    offset: int
    appended_ms: int
    committed_ms: int
    operation: str
    """Debezium's letter."""
    at: str
    """Which commit of the source, and the index in it."""
    key: Mapping[str, Any] | None
    """The key's columns; None for a truncate."""
    row: Mapping[str, Any] | None
    """After the change; None where it was deleted, or the table truncated."""


async def key_bytes(log: Log, stored: StoredSchema, given: str) -> frozenset[bytes]:
    """The key as records carry it, under every schema that the topic has had."""
    found: set[bytes] = set()
    async for each in read_schemas(log, schemas_home(stored.topic)):
        if each.topic != stored.topic or each.schema.key != stored.schema.key:
            continue
        rows = _key_row(each.schema, given)
        operations = pa.array([int(Operation.DELETE)], pa.uint8())
        changes = TableChanges(each.schema, rows, operations, {"ts_us": 0})
        keys = codec_for(each.wire, topic=each.topic).encode(changes, now_us=0).keys
        found.add(keys[0].as_py())
    return frozenset(found)


async def key_history(
    log: Log, stored: StoredSchema, keys: Collection[bytes]
) -> AsyncIterator[KeyChange]:
    """From the oldest change that the log still holds to the newest."""
    decoder = RecordDecoder(log)
    for place in await _places(log, stored.topic, keys):
        bounds = (await log.bounds([place]))[place]
        truncated = await CommitIndex(log, stored.pipeline).find_truncated(
            {place: bounds.start}, {place: bounds.stable}
        )
        wanted = [*keys, *([TRUNCATE_KEY] if truncated else [])]
        async for columns in _hits(log, place, wanted, start=bounds.start, end=bounds.stable):
            for change in await decode_changes(decoder, place, columns):
                yield change


async def newest_change(
    log: Log, topic: str, keys: Collection[bytes], *, ends: Mapping[TopicPartition, int] | None
) -> KeyChange | None:
    """The last one, searched for from the end; below `ends`, where they are given."""
    for place in await _places(log, topic, keys):
        bounds = (await log.bounds([place]))[place]
        end = bounds.stable if ends is None else min(ends[place], bounds.stable)
        window, wanted = WINDOW_OFFSETS, [*keys, TRUNCATE_KEY]
        while end > bounds.start:
            start = max(end - window, bounds.start)
            last: RecordColumns | None = None
            async for columns in _hits(log, place, wanted, start=start, end=end):
                last = columns
            if last is not None:
                return (await decode_changes(RecordDecoder(log), place, last))[-1]
            end, window = start, window * 4
    return None


async def change_as_of(
    log: Log, stored: StoredSchema, keys: Collection[bytes], cut_point: CutPoint
) -> KeyChange | None:
    """The last one before a moment, if compaction has left the moment whole until the end."""
    found = await newest_change(log, stored.topic, keys, ends=cut_point.ends)
    await check_exact(log, stored.pipeline, cut_point)
    return found


async def _places(log: Log, topic: str, keys: Collection[bytes]) -> list[TopicPartition]:
    count = await log.partition_count(topic)
    return [TopicPartition(topic, each) for each in sorted({partition_of(k, count) for k in keys})]


async def _hits(
    log: Log, place: TopicPartition, keys: Collection[bytes], *, start: int, end: int
) -> AsyncIterator[RecordColumns]:
    """Records of these keys, tombstones left out; in order."""
    wanted, scratch = pa.array([*keys], pa.binary()), RecordScratch()
    async with aclosing(batches_with(log, place, keys, start=start, end=end)) as batches:
        async for batch in batches:
            found = locate(batch, scratch, from_offset=start, partition=place)
            mask = np.asarray(pc.is_in(found.keys.column(), value_set=wanted))
            mask &= (found.offsets < end) & (found.values.lengths >= 0)
            if mask.any():
                yield found.pick(mask).columns()


async def decode_changes(
    decoder: RecordDecoder, place: TopicPartition, columns: RecordColumns
) -> list[KeyChange]:
    """Decodes records of one partition; tombstones are left out."""
    offsets = columns.offsets.tolist()
    headers = header_column(columns.headers, AT_HEADER).fill_null(b"").to_pylist()
    appended = dict(zip(offsets, columns.timestamps_ms.tolist(), strict=True))
    commits = dict(zip(offsets, headers, strict=True))
    found: list[KeyChange] = []
    for decoded in await decoder.decode_records(place, columns):
        changes = decoded.changes
        assert changes.log_offsets is not None, "a record that was read has an offset"
        for offset, operation, committed_us, row in zip(
            changes.log_offsets.to_pylist(),
            changes.operations.to_pylist(),
            changes.committed_us.to_pylist(),
            changes.rows.to_pylist(),
            strict=True,
        ):
            is_truncate = operation == Operation.TRUNCATE
            has_row = not is_truncate and operation != Operation.DELETE
            found.append(
                KeyChange(
                    place.topic,
                    place.partition,
                    offset,
                    appended[offset],
                    committed_us // 1_000,
                    OP_CODES[operation],
                    commits[offset].decode(),
                    None if is_truncate else {each: row[each] for each in changes.schema.key},
                    row if has_row else None,
                )
            )
    return found


def _key_row(schema: TableSchema, given: str) -> pa.RecordBatch:
    """`42`, `7,abc`, `id=42,line=1`, or a JSON object or list."""
    texts = _key_texts(schema, given)
    columns = []
    for column in schema.columns:
        if column.name not in schema.key:
            columns.append(pa.nulls(1, column.type))
            continue
        try:
            columns.append(_cast(texts[column.name], column.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            raise ConfigError(
                "the key is not a value of its column's type",
                table=str(schema.table),
                column=column.name,
                type=str(column.type),
            ) from None
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _cast(text: str, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        return pa.array([_bytes_of(text)], kind)
    if pa.types.is_time(kind):
        return pa.array([time.fromisoformat(text)], kind)
    if pa.types.is_timestamp(kind):
        plain = pa.array([text.removesuffix("Z").replace("T", " ")])
        return plain.cast(pa.timestamp(kind.unit)).cast(kind)
    return pa.array([text]).cast(kind)


def _bytes_of(text: str) -> bytes:
    """Returns the bytes of hexadecimal digits, or of the form in which `verify` and other answers
    show bytes that are no text."""
    if text.startswith(BASE64):
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    return bytes.fromhex(text.removeprefix("\\x"))


def _key_texts(schema: TableSchema, given: str) -> Mapping[str, str]:
    import json

    names = schema.key
    if given[:1] in "[{":
        try:
            found = json.loads(given)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list) and len(found) == len(names):
            found = dict(zip(names, found, strict=True))
        if isinstance(found, dict) and found.keys() == set(names):
            return {name: each if isinstance(each, str) else json.dumps(each)
                    for name, each in found.items()}  # fmt: skip
    if len(names) == 1:
        return {names[0]: given.removeprefix(f"{names[0]}=")}
    parts = given.split(",")
    if len(parts) == len(names) and given[:1] not in ("[", "{"):
        pairs = zip(names, parts, strict=True)
        return {name: part.removeprefix(f"{name}=") for name, part in pairs}
    raise ConfigError(
        "the text is not a key of the table",
        hint=f"the key of the table is ({', '.join(names)}): write "
        + (",".join(f"{name}=..." for name in names) if len(names) > 1 else "its value"),
        table=str(schema.table),
    )


def key_text(schema: TableSchema, key: Mapping[str, Any]) -> str:
    """The key as it is written for commands, so that it is found by this very text: `42`, `7,abc`,
    or a list of JSON where that could be read in two ways."""
    texts = {name: _value_text(key.get(name)) for name in schema.key}
    plain = ",".join(texts.values())
    with suppress(ConfigError):
        if _key_texts(schema, plain) == texts:
            return plain
    return orjson.dumps([*texts.values()]).decode()


def _value_text(value: Any) -> str:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    plain = to_json_value(value)
    return plain if isinstance(plain, str) else orjson.dumps(plain, default=str).decode()


async def stored_schema(log: Log, pipeline: str, table: str) -> StoredSchema:
    """The newest schema of a table by the name that the source gives it."""
    if not table:
        raise ConfigError("the argument does not name a table", hint=f"name it: {pipeline}/TABLE")
    known = {str(each.schema.table): each for each in (await schemas_of(log, pipeline)).values()}
    stored = known[find_table(table, known, pipeline=pipeline)]
    if not stored.schema.key:
        raise ConfigError(
            "the table has no key",
            table=str(stored.schema.table),
        )
    return stored


def change_facts(change: KeyChange) -> dict[str, Any]:
    """For programs."""
    return {
        "partition": change.partition,
        "offset": change.offset,
        "op": change.operation,
        "committed": time_text(change.committed_ms),
        "appended": time_text(change.appended_ms),
        "at": change.at,
        "row": None if change.row is None else to_json_value(change.row),
    }
