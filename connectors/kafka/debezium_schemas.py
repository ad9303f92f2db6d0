"""Finds the table's schema in Debezium's events: beside them, or in what their rows look like."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from headwater.connectors.kafka.connect_schemas import columns_of
from headwater.connectors.kafka.json_rows import as_line, column_types
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

OPENING = '{"schema":'
PAYLOAD = re.compile(r'\s*,\s*"payload"\s*:')
ROWS = ("after", "before")


class FramedSchema(NamedTuple):
    """What all records of one schema begin with, up to their payload; a brace follows that."""

    prefix: bytes
    schema: TableSchema


def has_schema(value: bytes) -> bool:
    return value.startswith(OPENING.encode())


def framed_schema(value: bytes, key: tuple[str, ...], table: TableId) -> FramedSchema:
    """The schema that a value brings along."""
    try:
        text = value.decode()
        document, end = json.JSONDecoder().raw_decode(text, len(OPENING))
        payload = PAYLOAD.match(text, end)
        if payload is None:
            raise ValueError("the payload does not follow the schema")
        row = next(each for each in document["fields"] if each.get("field") == "after")
        columns = columns_of(row["fields"])
    except (ValueError, KeyError, TypeError, StopIteration, UnicodeDecodeError):
        raise DecodeError("a value's schema is none of Debezium's envelope") from None
    known = {column.name for column in columns}
    schema = TableSchema(table, columns, tuple(name for name in key if name in known))
    return FramedSchema(text[: payload.end()].encode(), schema)


def inferred_schema(
    values: Iterable[bytes], key: tuple[str, ...], table: TableId
) -> TableSchema | None:
    """What the rows of these events have in common; None when there is no row among them."""
    rows = [line for value in values for row in _rows_of(value) if (line := as_line(row))]
    if not rows:
        return None
    kinds = column_types(rows)
    columns = tuple(Column(name, kind, is_nullable=name not in key) for name, kind in kinds.items())
    return TableSchema(table, columns, tuple(name for name in key if name in kinds))


def _rows_of(value: bytes) -> list[Mapping[str, Any]]:
    try:
        event = orjson.loads(value)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(event, dict):
        return []
    return [event[name] for name in ROWS if isinstance(event.get(name), dict)]


def key_columns(keys: pa.BinaryArray) -> tuple[str, ...]:
    """Names of the first key's members, with or without a schema beside them."""
    for key in keys.drop_null()[:1].to_pylist():
        try:
            document = orjson.loads(key)
        except orjson.JSONDecodeError:
            return ()
        if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
            document = document["payload"]
        return tuple(document) if isinstance(document, dict) else ()
    return ()
