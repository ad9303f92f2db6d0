"""kafka-python's copy of Kafka's own schemas, and its codec, as an independent opinion."""

from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
from kafka.protocol.schemas import BaseField, StructField, load_json

from headwater.core_log.protocol.fields import Field, Number, fields_of

KEPT = Path(__file__).parents[2] / "golden" / "kafka_schemas"
"""Schemas of messages between nodes, which kafka-python does not have."""


@cache
def schema(name: str) -> Any:
    kept = KEPT / f"{name}.json"
    return orjson.loads(kept.read_bytes()) if kept.exists() else load_json(name)


def request_schemas() -> list[Any]:
    names = {each.name for each in files("kafka.protocol.schemas.resources").iterdir()}
    names |= {each.name for each in KEPT.iterdir()}
    return [schema(name.removesuffix(".json")) for name in names if name.endswith("Request.json")]


def field_name(name: str) -> str:
    underscored: str = BaseField.underscore_name(name)
    return underscored


@cache
def _struct(name: str) -> Any:
    return StructField(schema(name))


def encode(message: Any, version: int, *, is_flexible: bool) -> bytes:
    struct = _struct(type(message).__name__)
    encoded: bytes = struct.encode(
        as_dict(message, version), version=version, compact=is_flexible, tagged=is_flexible
    )
    return encoded


def decode(name: str, data: bytes, version: int, *, is_flexible: bool) -> tuple[Any, bytes]:
    """The message as dictionaries, and what was left over."""
    stream = BytesIO(data)
    struct = _struct(name)
    return struct.decode(stream, version=version, compact=is_flexible, tagged=is_flexible), (
        stream.read()
    )


def as_dict(message: Any, version: int) -> dict[str, Any]:
    """What of a message is sent, under kafka-python's names for the fields."""
    sent: dict[str, Any] = {}
    for field in fields_of(message.__class__):
        value = getattr(message, field.name)
        if field.is_in(version) and (field.tag is None or not field.is_default(value)):
            sent[field.name] = _plain(field, value, version)
    return sent


def _plain(field: Field, value: Any, version: int) -> Any:
    if value is None or isinstance(field.kind, Number) or field.kind in (str, bytes, UUID):
        return [*value] if field.is_array and value is not None else value
    if field.kind is memoryview:
        return bytes(value)
    return [as_dict(each, version) for each in value] if field.is_array else as_dict(value, version)
