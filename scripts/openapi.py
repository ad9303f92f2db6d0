"""The OpenAPI document of the console's API, from its table of routes."""

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from starlette.responses import Response

REFERENCES = "#/components/schemas/{model}"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "problem", "hint", "facts"],
            "properties": {
                "kind": {"type": "string"},
                "problem": {"type": "string"},
                "hint": {"type": ["string", "null"]},
                "facts": {"type": "object"},
            },
        }
    },
}


def openapi() -> Mapping[str, Any]:
    from headwater.pipelines.console.console_server import ROUTES

    schemas: dict[str, Any] = {"Error": ERROR}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        content = {"text/event-stream": {"schema": {"type": "string"}}}
        if route.answer is not Response:
            content = {"application/json": {"schema": _schema(route.answer, schemas)}}
        refused = {"application/json": {"schema": {"$ref": REFERENCES.format(model="Error")}}}
        operation: dict[str, Any] = {
            "operationId": _operation(route.method, route.path),
            "summary": route.meaning,
            "parameters": [*_in_path(route.path), *_in_query(route.query)],
            "responses": {
                str(route.status): {"description": "as asked for", "content": content},
                "default": {"description": "refused", "content": refused},
            },
        }
        if route.body is not None:
            wanted = {"application/json": {"schema": _schema(route.body, schemas)}}
            operation["requestBody"] = {"required": True, "content": wanted}
        paths.setdefault(_plain(route.path), {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater console",
            "version": version("headwater"),
            "description": "The secret of the link (behind its #) goes into Authorization.",
        },
        "servers": [{"url": "http://127.0.0.1:8470"}],
        "security": [{"secret": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {"secret": {"type": "http", "scheme": "bearer"}},
        },
    }


def _schema(kind: Any, schemas: dict[str, Any]) -> Any:
    found = TypeAdapter(kind).json_schema(ref_template=REFERENCES, mode="serialization")
    schemas.update(found.pop("$defs", {}))
    if found.get("type") == "object" and "title" in found:
        schemas[found["title"]] = found
        return {"$ref": REFERENCES.format(model=found["title"])}
    return found


def _plain(path: str) -> str:
    return re.sub(r":[a-z]+}", "}", path)


def _operation(method: str, path: str) -> str:
    words = [word for word in re.split(r"[^a-zA-Z0-9]+", _plain(path)) if word not in ("api", "v1")]
    return "_".join([method.lower(), *filter(None, words)])


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "integer" if kind == ":count" else "string"},
        }
        for name, kind in re.findall(r"{([a-z_]+)(:[a-z]+)?}", path)
    ]


def _in_query(query: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in query.items()
    ]
