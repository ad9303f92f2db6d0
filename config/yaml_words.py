"""Types and values as a person writes them in YAML."""

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args

from annotated_types import Ge, Le
from pydantic import BeforeValidator, SecretStr, WithJsonSchema
from pydantic.fields import FieldInfo

from headwater.config.document import resolve_scalar
from headwater.config.model_keys import (
    annotation_of,
    is_model,
    members,
    no_bound_of,
    origin_of,
    unit_of,
)
from headwater.core_log.foundation.settings import as_list
from headwater.core_log.foundation.units import BYTES_PER_PREFIX, MS_PER_UNIT

NOT_PLAIN = re.compile(r"^[-?:,\[\]{}#&*!|>'\"%@`$ ]|: | #|[\[\]{},]|:$|\s$")


def duration_words(value_ms: int) -> str:
    """The largest unit that needs no fraction: 604800000 is 7d."""
    for unit in ("d", "h", "m", "s"):
        if value_ms and value_ms % MS_PER_UNIT[unit] == 0:
            return f"{value_ms // MS_PER_UNIT[unit]}{unit}"
    return f"{value_ms}ms" if value_ms else "0s"


def size_words(value_bytes: int) -> str:
    for prefix, bytes_each in (("Ti", "TI"), ("Gi", "GI"), ("Mi", "MI"), ("Ki", "KI")):
        each = BYTES_PER_PREFIX[bytes_each]
        if value_bytes and value_bytes % each == 0:
            return f"{value_bytes // each}{prefix}B"
    return f"{value_bytes}B"


def value_words(value: Any, unit: str = "") -> str:
    """A value on one line of YAML."""
    if isinstance(value, SecretStr):
        return value_words(value.get_secret_value())
    if unit and isinstance(value, int):
        return duration_words(value) if unit == "duration" else size_words(value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_words(each) for each in value)}]"
    if isinstance(value, dict):
        pairs = (f"{value_words(key)}: {value_words(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str | Path):
        return _text_words(str(value))
    return str(value)


def _text_words(text: str) -> str:
    is_plain = text and not NOT_PLAIN.search(text) and resolve_scalar(text) == text
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def default_words(field: FieldInfo) -> str:
    """The default as YAML; empty where it says nothing, such as an empty list."""
    if field.is_required():
        return ""
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value in ("", (), {}, []) or is_model(type(value)):
        return ""
    return value_words(value, unit_of(annotation_of(field)))


def type_words(field: FieldInfo) -> str:
    """Describes what may be written: `duration`, `number, at least 1`, `compact` or `delete`,
    ..."""
    return _type(annotation_of(field))


def _type(annotation: Any) -> str:
    if unit := unit_of(annotation):
        word = no_bound_of(annotation)
        return f"{unit} or `{word}`" if word else unit
    if origin_of(annotation) in (Union, UnionType):
        several = [each for each in get_args(annotation) if each is not NoneType]
        return " or ".join(dict.fromkeys(_type(each) for each in several))
    if origin_of(annotation) is Annotated:
        return _describe_type(annotation)
    if origin_of(annotation) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(annotation))
    if origin_of(annotation) in (tuple, list):
        inner = get_args(annotation)[0]
        return "list" if any(map(is_model, members(inner))) else f"list of {_type(inner)}"
    if origin_of(annotation) is dict or annotation is dict:
        return "keys with values"
    if is_model(annotation):
        return "keys with values"
    return NAMES.get(annotation, "text")


NAMES: dict[Any, str] = {
    str: "text",
    SecretStr: "text, secret",
    int: "number",
    float: "number",
    bool: "`true` or `false`",
    Path: "path",
    Any: "anything",
}


def _schema_words(schema: dict[str, Any]) -> str:
    """Describes what a schema made by hand allows: such types are written otherwise than they are
    kept."""
    found = {
        "keys with values" if each.get("type") == "object" else "text"
        for each in schema.get("anyOf", [schema])
    }
    return " or ".join(sorted(found, reverse=True))


def _describe_type(annotation: Any) -> str:
    inner, *metadata = get_args(annotation)
    if any(isinstance(each, BeforeValidator) and each.func is as_list for each in metadata):
        return "text or list of text"
    for each in metadata:
        if isinstance(each, WithJsonSchema) and each.json_schema is not None:
            return _schema_words(each.json_schema)
    words = _type(inner)
    least = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in metadata if isinstance(each, Le)), None)
    if words == "number" and least is not None and most is not None:
        return f"number, {least} to {most}"
    if words == "number" and least not in (None, 0):
        return f"number, at least {least}"
    return words
