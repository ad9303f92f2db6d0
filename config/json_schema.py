"""A JSON Schema for editors: keys, explanations and defaults while typing a pipeline file."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import ModelSchema

from headwater.core_log.foundation.settings import explanations_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": r"\$\{"}
"""A reference, which any value may be instead of itself."""


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
