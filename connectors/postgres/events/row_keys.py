"""The key columns of streamed rows, even if the table has changed or was dropped since."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.wal.wal_batch import Relation
from headwater.core_log.foundation.errors import DecodeError, check_format
from headwater.core_log.model.changes import Positions
from headwater.core_log.model.table_schema import TableSchema

PART = "keys"
"""Part of the position: tables by number to the key of their last changes."""
FORMAT_VERSION = 1

BY_COLUMNS, WHOLE = "di", "f"
"""Replica identities that flag the key's columns, and the one that sends all columns."""

KeyColumns = tuple[str, ...]
KeyTypes = tuple[str, ...]
"""The types of a key's columns in the log."""


@dataclass(slots=True)
class KeyHistory:
    """Former keys of tables, stored beside the position in the stream, because the catalog is
    newer. A table without a key is stored, too."""

    _by_oid: dict[int, KeyColumns] = field(default_factory=dict)
    _types: dict[int, KeyTypes] = field(default_factory=dict)
    """Absent for keys that an older version stored."""
    _is_told: bool = True

    @classmethod
    def restore(cls, positions: Positions, tables: Collection[CapturedTable]) -> "KeyHistory":
        """Restores the stored keys first: changes that are still to be streamed may be older than
        the catalog."""
        keys = cls(*_parse(positions[PART])) if PART in positions else cls(_is_told=False)
        for each in tables:
            if each.oid not in keys._by_oid:
                keys.learn_of(each.oid, each.schema)
        return keys

    def of(self, oid: int) -> KeyColumns | None:
        return self._by_oid.get(oid)

    def is_key_of(self, oid: int, schema: TableSchema) -> bool:
        """Whether earlier changes had the same key, as far as its types are known."""
        types = types_of(schema)
        return self.of(oid) == schema.key and self._types.get(oid, types) == types

    def learn(self, oid: int, key: KeyColumns, types: KeyTypes | None = None) -> None:
        if (self._by_oid.get(oid), self._types.get(oid)) == (key, types):
            return
        self._by_oid[oid], self._is_told = key, False
        self._types.pop(oid, None)
        if types is not None:
            self._types[oid] = types

    def learn_of(self, oid: int, schema: TableSchema) -> None:
        self.learn(oid, schema.key, types_of(schema))

    def news(self) -> Positions:
        """Returns the parts for the next position; empty if nothing is new."""
        if self._is_told:
            return {}
        self._is_told = True
        said = {
            "version": FORMAT_VERSION,
            "tables": {str(oid): key for oid, key in self._by_oid.items()},
            "types": {str(oid): types for oid, types in self._types.items()},
        }
        return {PART: orjson.dumps(said).decode()}


def types_of(schema: TableSchema) -> KeyTypes:
    return tuple(str(schema.column(name).type) for name in schema.key)


def key_of(
    relation: Relation,
    table: CapturedTable | None,
    names: Collection[str],
    before: KeyColumns | None,
) -> KeyColumns | None:
    """Returns the catalog's key in its order, unless the stream shows another one at that time.

    `names` are the captured columns, and `before` is the key of earlier changes. Returns None if
    the key is unknown.
    """
    by_columns = relation.identity in BY_COLUMNS
    flagged = tuple(
        column.name
        for column in relation.columns
        if by_columns and column.is_identity and column.name in names
    )
    now = table.schema.key if table is not None else None
    if flagged and (not now or (relation.identity == "d" and set(now) != set(flagged))):
        return flagged
    for key in (now, _find_renamed(relation, table), before):
        if key is not None and set(key) <= set(names):
            return key
    if by_columns:
        return flagged
    if table is not None and _has_all(table, relation):  # a key that came with a new column
        return ()
    return None


def _find_renamed(relation: Relation, table: CapturedTable | None) -> KeyColumns | None:
    """Returns the catalog's key with its former column names; None unless all columns are clearly
    the same, in the same places."""
    if table is None:
        return None
    now = [column for column in table.columns if not column.is_generated]
    if len(now) != len(relation.columns):
        return None
    places = {column.name: place for place, column in enumerate(relation.columns)}
    if any(places.get(column.name, place) != place for place, column in enumerate(now)):
        return None
    then = {
        new.name: old.name
        for new, old in zip(now, relation.columns, strict=True)
        if new.type_oid == old.type_oid
    }
    key = table.schema.key
    return tuple(then[name] for name in key) if then.keys() >= set(key) else None


def _has_all(table: CapturedTable, relation: Relation) -> bool:
    return {each.name for each in relation.columns} <= {each.name for each in table.columns}


def _parse(text: str) -> tuple[dict[int, KeyColumns], dict[int, KeyTypes]]:
    try:
        said = orjson.loads(text)
        check_format(said["version"], FORMAT_VERSION, "the keys of tables were stored")
        tables: Mapping[str, Sequence[str]] = said["tables"]
        types: Mapping[str, Sequence[str]] = said.get("types", {})
        return (
            {int(oid): tuple(str(name) for name in key) for oid, key in tables.items()},
            {int(oid): tuple(str(kind) for kind in kinds) for oid, kinds in types.items()},
        )
    except (KeyError, ValueError, TypeError, AttributeError):
        raise DecodeError("the keys of tables in the position are not readable") from None
