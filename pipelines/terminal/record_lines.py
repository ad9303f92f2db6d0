"""A record as one line for people and as an object for programs."""

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError, HeadwaterError
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records.record_codec import PlainRecord
from headwater.core_log.rows.codec import SCHEMA_HEADER, TRUNCATE_KEY, codec_for
from headwater.pipelines.dead_letters.dead_letter import DeadLetter
from headwater.pipelines.journal.schemas import SchemaReader
from headwater.pipelines.terminal.output import printable
from headwater.pipelines.terminal.quantities import time_text

BASE64 = "base64:"
"""Begins the text of bytes that are no text."""


def to_json_value(value: Any) -> Any:
    """Converts a value for JSON: decimals with all their digits, times in ISO 8601, bytes as text
    where they are one."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat().removesuffix("+00:00") + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, Mapping):
        return {name: to_json_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [to_json_value(inner) for inner in value]
    return value


def shown_bytes(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"{BASE64}{base64.b64encode(content).decode()}"


def row_line(row: Mapping[str, Any]) -> str:
    return json.dumps(to_json_value(row), ensure_ascii=False, default=str)


async def content_of(dead_letter: DeadLetter, schemas: SchemaReader) -> object:
    """The operation and the row; the bytes as text where they cannot be decoded, which may be the
    very reason why they are here."""
    try:
        return await _decode(dead_letter, schemas)
    except HeadwaterError:
        return shown_bytes(dead_letter.value or b"")


async def _decode(dead_letter: DeadLetter, schemas: SchemaReader) -> object:
    number = dict(dead_letter.headers).get(SCHEMA_HEADER)
    if number is None or dead_letter.value is None:
        return shown_bytes(dead_letter.value or b"")
    stored = await schemas.find(dead_letter.topic, int(number))
    changes = codec_for(stored.wire, topic=dead_letter.topic).decode(
        pa.array([dead_letter.key], pa.binary()),
        pa.array([dead_letter.value], pa.binary()),
        stored.schema,
    )
    [operation], [row] = changes.operations.to_pylist(), changes.rows.to_pylist()
    return {"operation": Operation(operation).name.lower(), "row": to_json_value(row)}


def record_data(record: PlainRecord) -> dict[str, object]:
    """Text where the bytes are UTF-8; else `key` or `value` is null and `..._base64` has them."""
    data: dict[str, object] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    data |= text_or_base64("key", record.key) | text_or_base64("value", record.value)
    if record.headers:
        data["headers"] = [header_data(*header) for header in record.headers]
    return data


def header_data(name: str, value: bytes | None) -> dict[str, object]:
    return {"name": name, **text_or_base64("value", value)}


def text_or_base64(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(content).decode()}


def record_line(partition: int, record: PlainRecord) -> str:
    """As it is in the log; a missing key or value is `-`."""
    return line_of(partition, record, as_text(record.key), as_text(record.value))


def line_of(partition: int, record: PlainRecord, key: str, value: str) -> str:
    """`partition:offset time key value`, tabs between."""
    return "\t".join((f"{partition}:{record.offset}", time_text(record.timestamp_ms), key, value))


def as_text(content: bytes | None) -> str:
    """Never more than a line, and nothing that a terminal would obey."""
    return "-" if content is None else printable(content.decode(errors="backslashreplace"))


EventGroup = Sequence[PlainRecord]


class EventLines:
    """Lines of events. A record that is no event of a table, or cannot be decoded, is shown as it
    is in the log."""

    def __init__(self, log: Log) -> None:
        self._schemas = SchemaReader(log)
        self._unknown: set[tuple[str, int]] = set()
        self._gone: tuple[bytes | None, str] = None, ""
        """Key of the newest delete, and what was shown for it: a tombstone follows."""

    async def of(self, partition: TopicPartition, records: EventGroup) -> list[str]:
        lines: list[str] = []
        for number, group in groupby(records, schema_number):
            lines += await self._lines(partition, number, list(group))
        return lines

    async def _lines(
        self, partition: TopicPartition, number: int | None, group: EventGroup
    ) -> list[str]:
        texts = None if number is None else await self._decode(partition.topic, number, group)
        if texts is not None:
            pairs = zip(group, texts, strict=True)
            return [line_of(partition.partition, each, *both) for each, both in pairs]
        if number is not None and len(group) > 1:  # one of them may be all that cannot be decoded
            return [line for each in group for line in await self._lines(partition, number, [each])]
        return [self._plain(partition, each) for each in group]

    def _plain(self, partition: TopicPartition, record: PlainRecord) -> str:
        key, text = self._gone
        if record.value is None and key is not None and record.key == key:
            return line_of(partition.partition, record, text, "-")
        return record_line(partition.partition, record)

    async def _decode(
        self, topic: str, number: int, group: EventGroup
    ) -> list[tuple[str, str]] | None:
        """Key and value of each; None where not all of them can be decoded."""
        if (topic, number) in self._unknown:
            return None
        try:
            stored = await self._schemas.find(topic, number)
            codec = codec_for(stored.wire, topic=topic)
        except HeadwaterError:
            self._unknown.add((topic, number))
            return None
        keys = pa.array([each.key for each in group], pa.binary())
        values = pa.array([each.value for each in group], pa.binary())
        try:
            changes = codec.decode(keys, values, stored.schema)
        except DecodeError:
            return None
        except HeadwaterError:  # a registry that does not answer
            self._unknown.add((topic, number))
            return None
        return self._show(group, changes)

    def _show(self, group: EventGroup, changes: TableChanges) -> list[tuple[str, str]]:
        keys = [_json(key) if key else "-" for key in changes.keys.to_pylist()]
        kinds = [Operation(kind).name.lower() for kind in changes.operations.to_pylist()]
        rows = map(_json, changes.rows.to_pylist())
        if kinds[-1] == "delete":
            self._gone = group[-1].key, keys[-1]
        return [(key, f"{kind} {row}") for key, kind, row in zip(keys, kinds, rows, strict=True)]


def schema_number(record: PlainRecord) -> int | None:
    """None for what is no event: tombstones, truncate markers, and what others have written."""
    if record.value is None or record.key == TRUNCATE_KEY:
        return None
    number = dict(record.headers).get(SCHEMA_HEADER)
    return int(number) if number is not None and number.isdigit() else None


def _json(row: object) -> str:
    return printable(json.dumps(to_json_value(row), ensure_ascii=False, default=str))
