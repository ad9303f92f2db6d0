"""A table's schema and wire settings as JSON: the value of a record of `__headwater_schemas`."""

from collections.abc import Mapping
from typing import Any

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.model.table_schema import Column, DroppedColumn, TableId, TableSchema
from headwater.core_log.rows.column_types import parse_type, type_text
from headwater.core_log.rows.settings import WireSettings

FORMAT_VERSION = 1


def schema_to_json(schema: TableSchema, wire: WireSettings) -> dict[str, Any]:
    """Returns the complete JSON: defaults are written too, because defaults may change and records
    stay."""
    written = {
        "version": FORMAT_VERSION,
        "table": {"namespace": schema.table.namespace, "name": schema.table.name},
        "columns": [_column_to_json(column) for column in schema.columns],
        "key": list(schema.key),
        "wire": wire.model_dump(mode="json"),
    }
    if schema.id:
        written["id"] = schema.id
    if schema.dropped:
        written["dropped"] = [_dropped_to_json(column) for column in schema.dropped]
    return written


def schema_from_json(document: Mapping[str, Any]) -> tuple[TableSchema, WireSettings]:
    if document.get("version") != FORMAT_VERSION:
        raise DecodeError(
            "the schema was written by another version of headwater",
            version=document.get("version"),
            known=FORMAT_VERSION,
            hint="read it with the version that wrote it, or a newer one",
        )
    try:
        table = TableId(document["table"]["namespace"], document["table"]["name"])
        columns = tuple(_column_from_json(column) for column in document["columns"])
        dropped = tuple(_dropped_from_json(column) for column in document.get("dropped", ()))
        schema = TableSchema(table, columns, tuple(document["key"]), dropped, document.get("id", 0))
        wire = WireSettings.model_validate(document["wire"])
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise DecodeError("a stored schema is invalid") from error
    return schema, wire


def _column_to_json(column: Column) -> dict[str, Any]:
    written: dict[str, Any] = {
        "name": column.name,
        "type": type_text(column.type),
        "nullable": column.is_nullable,
    }
    if column.semantic:
        written["semantic"] = column.semantic
    if column.parameters:
        written["parameters"] = dict(column.parameters)
    if column.mask:
        written["mask"] = column.mask
    if column.rule_name:
        written["rule_name"] = column.rule_name
    if column.id:
        written["id"] = column.id
    if column.missing is not None:
        written["missing"] = column.missing
    return written


def _column_from_json(document: Mapping[str, Any]) -> Column:
    return Column(
        document["name"],
        parse_type(document["type"]),
        is_nullable=document["nullable"],
        semantic=document.get("semantic", ""),
        parameters=dict(document.get("parameters", {})),
        mask=document.get("mask", ""),
        rule_name=document.get("rule_name", ""),
        id=document.get("id", 0),
        missing=document.get("missing"),
    )


def _dropped_to_json(column: DroppedColumn) -> str | dict[str, Any]:
    """Writes only the name of a column without an id, as it was done before there were ids."""
    if not (column.id or column.rule_name):
        return column.name
    return column._asdict()


def _dropped_from_json(document: str | Mapping[str, Any]) -> DroppedColumn:
    return DroppedColumn(document) if isinstance(document, str) else DroppedColumn(**document)
