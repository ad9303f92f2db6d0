"""Describes settings: the manual's tables, commented examples, and a JSON Schema for editors."""

import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args

from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator, SecretStr, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import ModelSchema

from headwater.config.document import resolve_scalar
from headwater.config.model_keys import (
    annotation_of,
    fields_of,
    is_model,
    members,
    no_bound_of,
    origin_of,
    unit_of,
)
from headwater.core_log.foundation.settings import as_list, explanations_of
from headwater.core_log.foundation.units import BYTES_PER_PREFIX, MS_PER_UNIT

WIDTH = 88
DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""A reference, which any value may be instead of itself."""
NOT_PLAIN = re.compile(r"^[-?:,\[\]{}#&*!|>'\"%@`$ ]|: | #|[\[\]{},]|:$|\s$")
NAMES: dict[Any, str] = {
    str: "text",
    SecretStr: "text, secret",
    int: "number",
    float: "number",
    bool: "`true` or `false`",
    Path: "path",
    Any: "anything",
}


@dataclass(frozen=True, slots=True)
class SettingKey:
    path: str
    """With dots; `[]` after a key that holds a list, `<name>` where any name may stand."""
    type: str
    default: str
    is_required: bool
    text: str
    examples: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {
            "key": self.path,
            "value": self.type,
            "default": self.default or None,
            "required": self.is_required,
            "text": self.text,
            "examples": self.examples,
        }


def keys_below(keys: Iterable[SettingKey], path: str) -> list[SettingKey]:
    """The key at a path and those below it; all of them for an empty path. `transform.mask` finds
    `transform[].mask`."""
    return [key for key in keys if not path or f"{_bare(key.path)}.".startswith(f"{_bare(path)}.")]


def keys_called(keys: Iterable[SettingKey], name: str) -> list[SettingKey]:
    return [key for key in keys if f".{_bare(key.path)}".endswith(f".{_bare(name)}")]


def _bare(path: str) -> str:
    return path.replace("[]", "").replace(".<name>", "")


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[SettingKey]:
    """Every key of a model and of those inside it, in the order of their declaration."""
    texts = explanations_of(model).values()
    for (name, field), text in zip(fields_of(model).items(), texts, strict=True):
        yield SettingKey(
            prefix + name,
            _type_words(annotation_of(field)),
            default_words(field),
            field.is_required(),
            one_line(text),
            tuple(value_words(each) for each in field.examples or ()),
        )
        for infix, inner in inner_models(field):
            yield from keys_of(inner, f"{prefix}{name}{infix}.")


def inner_models(field: FieldInfo) -> Iterator[tuple[str, type[BaseModel]]]:
    """Models below a field, with what stands between its name and their keys."""
    yield from _inner(annotation_of(field), "")


def _inner(annotation: Any, infix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for member in members(annotation):
        if is_model(member):
            yield infix, member
        elif origin_of(member) in (tuple, list):
            yield from _inner(get_args(member)[0], f"{infix}[]")
        elif origin_of(member) is dict:
            yield from _inner(get_args(member)[1], f"{infix}.<name>")


def summary_of(component: type[Any]) -> str:
    """Returns the purpose of a source or sink in one sentence: its module opens with it. The class
    begins with what it guarantees."""
    module = inspect.getmodule(component)
    docstring = inspect.getdoc(module) if module else None
    words = one_line(docstring or inspect.getdoc(component) or "").split(". ")[0].rstrip(".")
    return f"{words}."


def commented_yaml(
    model: type[BaseModel], *, indent: int = 0, leaving_out: Collection[str] = ()
) -> list[str]:
    """A model as YAML: what is required with an example, the rest commented out with its default,
    each below its explanation. Taking away signs without a space after them leaves YAML."""
    lines: list[str] = []
    texts = explanations_of(model).values()
    for (name, field), text in zip(fields_of(model).items(), texts, strict=True):
        if name in leaving_out:
            continue
        found = [f"{' ' * indent}# {line}" for line in wrap(one_line(text), WIDTH - indent)]
        found += _sample_lines(name, field, indent)
        if not indent:
            found.append("")
        lines += found if field.is_required() else [_comment(line) for line in found]
    return lines


def _sample_lines(name: str, field: FieldInfo, indent: int) -> list[str]:
    margin = " " * indent
    inner = [each for each in inner_models(field) if each[0] in ("", "[]")]
    if not inner or field.examples:
        return [f"{margin}{name}: {_sample(field)}"]
    infix, model = inner[0]
    if not infix:
        return [f"{margin}{name}:", *commented_yaml(model, indent=indent + 2)]
    below = commented_yaml(model, indent=indent + 4)
    first = next(at for at, line in enumerate(below) if not line.lstrip().startswith("#"))
    below[first] = f"{margin}  - {below[first].lstrip()}"
    return [f"{margin}{name}:", *below]


def one_line(text: str) -> str:
    return " ".join(text.split())


def _sample(field: FieldInfo) -> str:
    if field.examples and (field.is_required() or not default_words(field)):
        return value_words(field.examples[0])
    return default_words(field) or "..."


def _comment(line: str) -> str:
    if not line or line.lstrip().startswith("#"):
        return line
    bare = line.lstrip(" ")
    return f"{line[: len(line) - len(bare)]}#{bare}"


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


def _type_words(annotation: Any) -> str:
    """Describes what may be written: `duration`, `number, at least 1`, `compact` or `delete`,
    ..."""
    if unit := unit_of(annotation):
        word = no_bound_of(annotation)
        return f"{unit} or `{word}`" if word else unit
    if origin_of(annotation) in (Union, UnionType):
        several = [each for each in get_args(annotation) if each is not NoneType]
        return " or ".join(dict.fromkeys(_type_words(each) for each in several))
    if origin_of(annotation) is Annotated:
        return _describe_type(annotation)
    if origin_of(annotation) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(annotation))
    if origin_of(annotation) in (tuple, list):
        inner = get_args(annotation)[0]
        return "list" if any(map(is_model, members(inner))) else f"list of {_type_words(inner)}"
    if origin_of(annotation) is dict or annotation is dict:
        return "keys with values"
    if is_model(annotation):
        return "keys with values"
    return NAMES.get(annotation, "text")


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
    words = _type_words(inner)
    least = next((each.ge for each in metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in metadata if isinstance(each, Le)), None)
    if words == "number" and least is not None and most is not None:
        return f"number, {least} to {most}"
    if words == "number" and least not in (None, 0):
        return f"number, at least {least}"
    return words


def pipeline_schema(
    spec: type[BaseModel],
    *,
    sources: Mapping[str, tuple[type[BaseModel], ...]],
    sinks: Mapping[str, tuple[type[BaseModel], ...]],
) -> dict[str, Any]:
    """The schema of a whole file. A source or sink is described by its own settings and those
    that all of its kind share, which come second and give way."""
    models = [
        spec,
        *{each for kinds in (sources, sinks) for some in kinds.values() for each in some},
    ]
    names, definitions = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, schema_generator=_Explained
    )
    defined: dict[str, Any] = definitions["$defs"]

    def schema_of(model: type[BaseModel]) -> dict[str, Any]:
        reference: str = names[(model, "validation")]["$ref"]
        found: dict[str, Any] = defined[reference.rpartition("/")[2]]
        return found

    root = schema_of(spec)
    parts = {
        f"source {kind}": _part(kind, [schema_of(model) for model in some], is_source=True)
        for kind, some in sources.items()
    } | {
        f"sink {kind}": _part(kind, [schema_of(model) for model in some], is_source=False)
        for kind, some in sinks.items()
    }
    one_of = {
        word: {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in parts if name.startswith(word)]}
        for word in ("source", "sink")
    }
    several = {"type": "array", "items": one_of["sink"]}
    properties = root["properties"] | {
        "source": one_of["source"],
        "sink": {"anyOf": [one_of["sink"], several]},
    }
    head = properties["pipeline"]
    properties["pipeline"] = {"anyOf": [{"type": "string"}, head]}
    content = {
        "type": "object",
        "properties": properties,
        "required": ["pipeline", "source"],
        "additionalProperties": False,
        "$defs": defined | parts,
    }
    return {"$schema": DIALECT, **_with_references(content)}


class _Explained(GenerateJsonSchema):
    """With what the docstrings of the fields say."""

    def model_schema(self, schema: ModelSchema) -> JsonSchemaValue:
        model: type[BaseModel] = schema["cls"]
        found = super().model_schema(schema)
        for name, text in explanations_of(model).items():
            key = model.model_fields[name].alias or name
            found["properties"][key]["description"] = text
        return found


def _part(kind: str, schemas: list[dict[str, Any]], *, is_source: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = ["type"]
    for schema in reversed(schemas):
        properties |= schema["properties"]
        required += [key for key in schema.get("required", ()) if key not in required]
    part = {
        "type": "object",
        "description": schemas[0].get("description", ""),
        "properties": properties | {"type": {"const": kind}},
        "required": required,
        "additionalProperties": False,
    }
    if is_source:
        # Debezium's spellings, which are translated before anything is checked.
        part["patternProperties"] = {r"^[a-z]+(\.[a-z]+)+$": {}}
    return part


def _with_references(schema: Any) -> Any:
    """Every value that is no text may also be a reference to one."""
    if isinstance(schema, list):
        return [_with_references(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _as_written(schema)
    if schema.get("type") in ("integer", "number", "boolean") or _is_bounded_text(schema):
        described = {key: schema[key] for key in ("description", "default") if key in schema}
        bare = {key: value for key, value in schema.items() if key not in described}
        return described | {"anyOf": [bare, REFERENCE]}
    return {key: _inside(key, value) for key, value in schema.items()}


def _inside(key: str, value: Any) -> Any:
    if key in ("default", "examples", "required"):
        return value
    if key in ("properties", "patternProperties", "$defs"):
        return {name: _with_references(each) for name, each in value.items()}
    return _with_references(value)


def _as_written(schema: dict[str, Any]) -> dict[str, Any]:
    """Defaults only where Python and YAML write them alike, which an editor would insert; no
    titles, which only repeat the names."""
    default = schema.get("default")
    is_alike = isinstance(default, str | int | float) and (
        isinstance(default, str) or schema.get("type") != "string"
    )
    left_out = {"title"} if isinstance(schema.get("title"), str) else set()
    if not is_alike:
        left_out.add("default")
    return {key: value for key, value in schema.items() if key not in left_out}


def _is_bounded_text(schema: dict[str, Any]) -> bool:
    return "enum" in schema or (schema.get("type") == "string" and "pattern" in schema)
