"""Columns that the console hides: they leave rows, keys and messages before any search."""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headwater.config.document import MappingNode, ScalarNode, YamlNode, read_document
from headwater.config.excerpts import add_excerpt
from headwater.config.mistakes import MistakesFound
from headwater.config.substitution import substitute
from headwater.config.validation import Validator
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import Log
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.log_settings import files_at
from headwater.pipelines.file.spec import ConsoleViewSettings
from headwater.pipelines.journal.schemas import all_schemas_of
from headwater.pipelines.terminal.record_lines import to_json_value
from headwater.pipelines.time_travel.history.key_history import key_text

VALUE_CHARACTERS_MAX = 2_000
WHOLE_CHARACTERS_MAX = 1 << 20
"""Limit of a value of a record that is shown alone."""
DIGEST_CHARACTERS = 10
HIDDEN = "hidden"
OWN_NOTE = "{"
"""In a part of a position it begins what is no place, such as where a snapshot is."""


class HiddenColumns:
    """The hidden columns of every pipeline, as `console.hide` of its file names them:
    `schema.table.column`."""

    def __init__(self, by_pipeline: Mapping[str, Iterable[str]]) -> None:
        self._named = {pipeline: frozenset(names) for pipeline, names in by_pipeline.items()}
        self._secret = secrets.token_bytes(16)

    @property
    def hides_anything(self) -> bool:
        return any(self._named.values())

    def hides_any_of(self, pipeline: str) -> bool:
        return bool(self._named.get(pipeline))

    async def known_schemas(self, log: Log, pipeline: str) -> Sequence[TableSchema]:
        """Every schema by which a hidden column may be found under another name."""
        if not self.hides_any_of(pipeline):
            return ()
        return [each.schema for each in await all_schemas_of(log, pipeline)]

    def positions(self, pipeline: str, positions: Mapping[str, str]) -> dict[str, str]:
        """Hides positions: a source's own notes may hold values of the last row that it has
        read."""
        hides = self.hides_any_of(pipeline)
        return {
            part: HIDDEN if hides and OWN_NOTE in text else text for part, text in positions.items()
        }

    def status(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status of all pipelines as it may be shown."""
        shown = dict(status["pipelines"])
        for name in filter(self.hides_any_of, shown):
            tasks = {
                task: {**facts, "positions": self.positions(name, facts["positions"])}
                for task, facts in shown[name]["tasks"].items()
            }
            shown[name] = {**shown[name], "tasks": tasks}
        return {**status, "pipelines": shown}

    def view(
        self, pipeline: str, schema: TableSchema, known: Iterable[TableSchema] = ()
    ) -> "ShownTable":
        """A column that ever had a hidden name, in a table that ever had that name, is hidden by
        its id; `known` are the schemas that tell of it.

        A name that the table does not have may be that of a column renamed since, so then
        nothing of the table is shown. With more dots it may be that of another table."""
        all_named = self._named.get(pipeline, frozenset())
        ids = {
            (each.id, column.id)
            for each in known
            for column in each.columns
            if each.id and column.id
            for start in _starts(each.table)
            if f"{start}{column.name}" in all_named
        }
        found = {
            name.removeprefix(start)
            for start in _starts(schema.table)
            for name in all_named
            if name.startswith(start)
        }
        named = {name for name in found if "." not in name or name in schema.names}
        missing = sorted(named - set(schema.names))
        renamed = {each.name for each in schema.columns if (schema.id, each.id) in ids}
        hidden = set(schema.names) if missing else named | renamed
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
        """As it is written for commands; a hidden key is a number that means nothing outside of
        this console."""
        text = key_text(self.schema, key)
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


def _starts(table: TableId) -> set[str]:
    """How names of its columns begin: with its schema, or without."""
    return {f"{table}.", f"{table.name}."}


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


def hidden_in(path: Path | None) -> HiddenColumns:
    """Returns the hidden columns of one file, or of a directory of files; none without a file."""
    if path is None:
        return NOTHING_HIDDEN
    found: dict[str, set[str]] = {}
    for each in files_at(path):
        for pipeline, names in _hidden(each):
            found.setdefault(pipeline, set()).update(names)
    return HiddenColumns(found)


def _hidden(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    written = read_document(path)
    substituted = substitute(written, os.environ)
    root = substituted.document.root
    if not isinstance(root, MappingNode) or "console" not in root.values:
        return []
    validator = Validator(substituted.document)
    found = validator.validate(ConsoleViewSettings, root.values["console"], ("console",))
    if found is None:
        raise MistakesFound(
            [add_excerpt(each, written, substituted.redaction) for each in validator.mistakes]
        )
    return [(_name(path, root.values.get("pipeline")), found.hide)]


def _name(path: Path, node: YamlNode | None) -> str:
    if isinstance(node, MappingNode):
        return _name(path, node.values.get("name"))
    if isinstance(node, ScalarNode) and node.text and not node.is_unset:
        return node.text
    raise ConfigError(
        "the file does not say whose columns the console hides",
        hint="write `pipeline: NAME`",
        file=str(path),
    )
