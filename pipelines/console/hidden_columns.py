"""Columns that the console hides: they leave rows, keys and messages before any search."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.terminal.record_lines import to_json_value

VALUE_CHARACTERS_MAX = 2_000
WHOLE_CHARACTERS_MAX = 1 << 20
"""Of a value of a record that is shown alone."""
DIGEST_CHARACTERS = 10


class HiddenColumns:
    """Of every pipeline, as `console.hide` of its file names them: `schema.table.column`."""

    def __init__(self, by_pipeline: Mapping[str, Iterable[str]]) -> None:
        self._named = {pipeline: frozenset(names) for pipeline, names in by_pipeline.items()}
        self._secret = secrets.token_bytes(16)

    @property
    def hides_anything(self) -> bool:
        return any(self._named.values())

    def view(self, pipeline: str, schema: TableSchema) -> "ShownTable":
        """A name that the table does not have may be that of a column renamed since, so then
        nothing of the table is shown. With more dots it may be that of another table."""
        start = f"{schema.table}."
        found = {
            name.removeprefix(start)
            for name in self._named.get(pipeline, ())
            if name.startswith(start)
        }
        named = {name for name in found if "." not in name or name in schema.names}
        missing = sorted(named - set(schema.names))
        hidden = set(schema.names) if missing else named
        names = tuple(name for name in schema.names if name not in hidden)
        return ShownTable(schema, names, tuple(sorted(hidden)), tuple(missing), self._secret)


@dataclass(frozen=True, slots=True)
class ShownTable:
    """One table, and the columns of it that may be seen."""

    schema: TableSchema
    names: tuple[str, ...]
    hidden: tuple[str, ...]
    missing: tuple[str, ...]
    """Names that are to be hidden and that the table does not have."""
    secret: bytes

    @property
    def is_key_hidden(self) -> bool:
        return any(name in self.hidden for name in self.schema.key)

    def row(
        self, row: Mapping[str, Any], *, characters_max: int = VALUE_CHARACTERS_MAX
    ) -> list[str | None]:
        return [shown_value(row.get(name), characters_max) for name in self.names]

    def key(self, key: Mapping[str, Any]) -> str:
        """A hidden key is a number that means nothing outside of this console."""
        text = ", ".join(shown_value(key.get(name)) or "" for name in self.schema.key)
        if not self.is_key_hidden:
            return text
        digest = hmac.new(self.secret, text.encode(errors="replace"), hashlib.sha256)
        return f"#{digest.hexdigest()[:DIGEST_CHARACTERS]}"

    def columns(self) -> Sequence["ShownColumn"]:
        types = {each.name: str(each.type) for each in self.schema.columns}
        return [ShownColumn(name, types[name]) for name in self.names]


@dataclass(frozen=True, slots=True)
class ShownColumn:
    """A column of rows that are shown."""

    name: str
    type: str


def shown_value(value: Any, characters_max: int = VALUE_CHARACTERS_MAX) -> str | None:
    """Text, because a browser rounds integers above 2^53."""
    if value is None:
        return None
    plain = to_json_value(value)
    text = plain if isinstance(plain, str) else orjson.dumps(plain, default=str).decode()
    return shorten(text, characters_max)


def shorten(text: str, characters_max: int) -> str:
    return text if len(text) <= characters_max else text[:characters_max] + "…"


NOTHING_HIDDEN = HiddenColumns({})
