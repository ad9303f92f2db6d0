"""The schemas that a table has had, and what each has changed."""

from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import Column
from headwater.core_log.rows.column_types import type_text
from headwater.pipelines.journal.schemas import StoredSchema, read_schemas, schemas_home


async def schemas_of_topic(log: Log, pipeline: str, topic: str) -> list[StoredSchema]:
    """The oldest first."""
    found = [
        stored
        async for stored in read_schemas(log, schemas_home(topic))
        if stored.topic == topic and stored.pipeline == pipeline
    ]
    return sorted(found, key=lambda stored: stored.id)


def differences(before: StoredSchema, after: StoredSchema) -> list[dict[str, str]]:
    old = {column.name: column for column in before.schema.columns}
    new = {column.name: column for column in after.schema.columns}
    found = [
        _change("dropped", name, before=column_text(old[name])) for name in old if name not in new
    ]
    found += [
        _change("added", name, after=column_text(new[name])) for name in new if name not in old
    ]
    found += [
        _change("altered", name, before=column_text(old[name]), after=column_text(new[name]))
        for name in old
        if name in new and old[name] != new[name]
    ]
    keys = [", ".join(each.schema.key) or "none" for each in (before, after)]
    if keys[0] != keys[1]:
        found.append(_change("key", "", before=keys[0], after=keys[1]))
    if before.wire != after.wire:
        pairs = zip(before.wire, after.wire, strict=True)
        found += [
            _change("format", name, before=str(was), after=str(now))
            for (name, was), (_, now) in pairs
            if was != now
        ]
    if not found and list(old) != list(new):
        found.append(_change("order", "", before=", ".join(old), after=", ".join(new)))
    return found


def _change(what: str, column: str, *, before: str = "", after: str = "") -> dict[str, str]:
    return {"what": what, "column": column, "before": before, "after": after}


def column_text(column: Column) -> str:
    semantic = f" ({column.semantic})" if column.semantic else ""
    labels = "".join(f" {name}={value}" for name, value in sorted(column.parameters.items()))
    return f"{type_text(column.type)}{'' if column.is_nullable else ' not null'}{semantic}{labels}"
