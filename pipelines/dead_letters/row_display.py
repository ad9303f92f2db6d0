"""Values of rows as people write them, whatever form they have in the log."""

import base64
import json
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.changes import Operation
from headwater.core_log.rows.codec import SCHEMA_HEADER, codec_for
from headwater.pipelines.dead_letters.dead_letter import DeadLetter
from headwater.pipelines.journal.schemas import SchemaReader


def to_json_value(value: Any) -> Any:
    """What JSON can hold: decimals with all their digits, times in ISO 8601, bytes as text where
    they are one."""
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
        return f"base64:{base64.b64encode(content).decode()}"


def row_line(row: Mapping[str, Any]) -> str:
    return json.dumps(to_json_value(row), ensure_ascii=False, default=str)


async def content_of(letter: DeadLetter, schemas: SchemaReader) -> object:
    """The operation and the row; the bytes as text where they cannot be decoded, which may be the
    very reason why they are here."""
    try:
        return await _decode(letter, schemas)
    except HeadwaterError:
        return shown_bytes(letter.value or b"")


async def _decode(letter: DeadLetter, schemas: SchemaReader) -> object:
    number = dict(letter.headers).get(SCHEMA_HEADER)
    if number is None or letter.value is None:
        return shown_bytes(letter.value or b"")
    stored = await schemas.find(letter.topic, int(number))
    changes = codec_for(stored.wire, topic=letter.topic).decode(
        pa.array([letter.key], pa.binary()), pa.array([letter.value], pa.binary()), stored.schema
    )
    [operation], [row] = changes.operations.to_pylist(), changes.rows.to_pylist()
    return {"operation": Operation(operation).name.lower(), "row": to_json_value(row)}
