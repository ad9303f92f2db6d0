"""The column ids of a target table, and the renames and fills that follow from them."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import orjson

from headwater.core_log.model.table_schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """Names of a target table's columns, stored with it in the commit of its columns."""

    names: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """By the id of the source's table, and of the column."""
    others: frozenset[str] = frozenset()
    """Columns without an id."""
    begun: Mapping[int, Mapping[int, str]] = field(default_factory=dict)
    """Further names, which columns may have got by renames before a crash."""

    @classmethod
    def parse(cls, text: str | None) -> "ColumnIds":
        if not text:
            return cls()
        stored = orjson.loads(text)
        names, begun = (
            {
                int(table): {int(column): name for column, name in columns.items()}
                for table, columns in stored.get(part, {}).items()
            }
            for part in ("names", "begun")
        )
        return cls(names, frozenset(stored["others"]), begun)

    def text(self) -> str:
        names, begun = (
            {
                str(table): {str(column): name for column, name in columns.items()}
                for table, columns in each.items()
            }
            for each in (self.names, self.begun)
        )
        stored = {"names": names, "others": sorted(self.others)}
        return orjson.dumps(stored | ({"begun": begun} if begun else {})).decode()

    def begin(self, renames: Mapping[str, str]) -> "ColumnIds":
        """Returns what to store before these renames, which may rename columns of a former table of
        the same name, too."""
        begun = {
            table: {id: renames[name] for id, name in columns.items() if name in renames}
            for table, columns in self.names.items()
        }
        return replace(self, begun={table: news for table, news in begun.items() if news})

    def with_present(
        self, schema: TableSchema, there: Collection[str], fold: Callable[[str], str]
    ) -> "ColumnIds":
        """Returns the ids for the names that the target has: after the renames that were begun, as
        far as they were made, and without columns that neither it nor the source has."""
        present, wanted = {*map(fold, there)}, {column.id for column in schema.columns}
        names = dict[int, dict[int, str]]()
        for table, columns in self.names.items():
            begun = self.begun.get(table, {})
            for id, name in columns.items():
                new = begun.get(id, name)
                is_made = fold(name) not in present and fold(new) in present
                is_kept = is_made or fold(name) in present or id in wanted or table != schema.id
                if is_kept:
                    names.setdefault(table, {})[id] = new if is_made else name
        return replace(self, names=names, begun={})

    def find_renames(self, schema: TableSchema, names: Mapping[str, str]) -> dict[str, str]:
        """Returns old to new names in the target; `names` are the source columns' names there.

        A target shared by several source tables has none: they need not be altered alike, and a
        column of the key, which no source has, tells their rows apart. A name
        that the target has without an id is only recorded: the source reads such a table again.
        """
        known = self._of(schema)
        return {
            known[column.id]: names[column.name]
            for column in schema.columns
            if column.id in known
            and column.name in names
            and column.name not in schema.key
            and known[column.id] != names[column.name]
            and names[column.name] not in self.others
        }

    def find_ids(self, schema: TableSchema) -> dict[str, int]:
        """Returns the ids of the target's columns by their names."""
        return {name: id for id, name in self._of(schema).items()}

    def find_kept(self, schema: TableSchema) -> set[str]:
        """Returns names in the target of columns that the source has. Others belong to dropped
        columns, or were made for rows that were never committed."""
        there = {column.id for column in schema.columns}
        return {name for id, name in self._of(schema).items() if id in there} | self.others

    def find_fills(self, schema: TableSchema, names: Mapping[str, str]) -> dict[str, Column]:
        """Returns, by target name, columns that get a value for existing rows, or another column's
        name. Rows keep their key."""
        known = self._of(schema)
        taken = set(known.values())
        return {
            names[column.name]: column
            for column in schema.columns
            if known
            and column.id
            and column.id not in known
            and column.name in names
            and column.name not in schema.key
            and names[column.name] not in self.others
            and (column.missing is not None or names[column.name] in taken)
        }

    def with_schema(self, schema: TableSchema, names: Mapping[str, str]) -> "ColumnIds":
        """Returns the names after the table has the columns of a new form."""
        if not schema.id:
            return self
        now = {
            column.id: names[column.name]
            for column in schema.columns
            if column.id and column.name in names
        }
        before = self.names.get(schema.id, {})
        former = {id: name for id, name in before.items() if name not in now.values()}
        others = {
            names[column.name]
            for column in schema.columns
            if not column.id and column.name in names
        }
        return ColumnIds(
            {**self.names, schema.id: {**former, **now}},
            (self.others | others) - set(now.values()),
        )

    def _of(self, schema: TableSchema) -> Mapping[int, str]:
        is_shared = any(column.name in schema.key and not column.id for column in schema.columns)
        return {} if is_shared and len(self.names) > 1 else self.names.get(schema.id, {})
