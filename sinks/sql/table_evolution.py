"""The statements that give an existing table of the target the form for rows of another schema."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import EvolutionAction, EvolutionStep, may_rename, step_of, steps
from headwater.sinks.object_names import OWN
from headwater.sinks.sql.dialects.dialect import Dialect, OwnershipMark, qualify
from headwater.sinks.sql.settings import SqlTableSettings
from headwater.sinks.sql.table_layout import (
    OWN_COLUMNS,
    Moves,
    SqlTableLayout,
    columns_of,
    sql_type_of,
)

if TYPE_CHECKING:
    import sqlalchemy as sa


REBUILD = "headwater rebuild PIPELINE/TABLE --swap makes the table anew"
TEMPORARY = f"{OWN}renamed_"
"""The name of a column, with its id, while another one gets the name that it had."""


class SchemaAlteration(NamedTuple):
    """The steps before rows can be written."""

    layout: SqlTableLayout
    stages: Sequence[Sequence[str]] = ()
    """Statements. Where DDL commits by itself, the table is read again behind each stage."""
    moves: Sequence[Moves] = ()
    """The new names that each stage makes."""
    begin: Callable[[ColumnIds], ColumnIds] | None = None
    """Returns what to store before the first stage instead of the ids that are stored: with its
    renames, and after those before it."""
    drops: Sequence[str] = ()
    """Statements that may run after the rows."""
    is_of_key: bool = False
    """Whether the statements only change the key; the table is then read again."""
    fills: Mapping[str, Column] = MappingProxyType({})
    """Columns of the target that get the source column's value in existing rows."""
    column_ids: ColumnIds = ColumnIds()
    """The ids of its columns afterwards."""

    @property
    def statements(self) -> list[str]:
        return [*chain.from_iterable(self.stages)]


@dataclass(slots=True)
class TableEvolution:
    """An existing table of the target, which gets the form that `schema` and `layout` say."""

    dialect: Dialect
    connection: "sa.Connection"
    schema: TableSchema
    layout: SqlTableLayout
    settings: SqlTableSettings

    def evolve(
        self,
        statements: list[str],
        *,
        policy: Mapping[str, str],
        may_drop: bool,
        column_ids: ColumnIds,
    ) -> SchemaAlteration:
        """Returns the alteration behind `statements`, as far as `policy` allows it."""
        schema, layout = self.schema, self.layout
        allowed = dict(policy)
        found = self._columns()
        present = [each["name"] for each in found]
        column_ids = column_ids.with_present(schema, present, self._fold)
        renames = column_ids.find_renames(schema, layout.names) if may_rename(policy) else {}
        kept = {self._fold(name) for name in column_ids.find_kept(schema)}
        there, renames, replaced = self._reflect(found, renames, kept)
        moves = self._moves(renames, column_ids.find_ids(schema))
        stages = [[*map(self._drop_column, replaced)], *map(self._renaming, moves)]
        stage_moves: list[Moves] = [dict.fromkeys(replaced), *moves, {}]
        is_history = layout.mode != "mirror"
        if allowed.get("drop_column", "evolve") == "evolve" and (is_history or not may_drop):
            allowed["drop_column"] = "lenient"  # existing rows stay readable
        is_key = {name: layout.names[name] in layout.key for name in schema.names}
        wanted = TableSchema(
            schema.table,
            tuple(
                replace(column, type=self.dialect.fit(column, is_key=is_key[column.name]).holds)
                for column in schema.columns
            ),
            schema.key,
        )
        taken = steps(schema.table, present=there, wanted=wanted, policy=allowed, comes=schema)
        taken += self._free_texts(found, renames, allowed)
        drops: list[str] = []
        types = {column.name: column.type for column in there}
        names, absent = dict(layout.names), dict[str, pa.DataType | None]()
        stays: dict[str, pa.DataType] = {}
        for step in taken:
            if step.action is EvolutionAction.STAY:
                if step.kind != "drop_not_null" and not pa.types.is_string(types[step.column]):
                    stays[step.column] = types[step.column]
            elif step.action is EvolutionAction.SKIP:
                del names[step.column]
            elif step.action is EvolutionAction.KEEP:
                absent[step.column] = types[step.column]
            elif step.action is EvolutionAction.DROP:
                drops.append(self._drop_column(step.column))
                absent[step.column] = types[step.column]
            else:
                statements = statements + self._alter(step, stored=types.get(step.column))
        stages.append(statements)
        if self.dialect.has_transactional_ddl and drops:
            dropped = {step.column for step in taken if step.action is EvolutionAction.DROP}
            absent = {name: kind for name, kind in absent.items() if name not in dropped}
        layout = replace(layout, names=names, absent=absent, stays=stays)
        fills = column_ids.find_fills(schema, names)
        is_rename = not stages[0] and bool(renames)
        return SchemaAlteration(
            layout,
            [each for each in stages if each],
            [each for each, stage in zip(stage_moves, stages, strict=True) if stage],
            partial(self._begin, present, moves[0] if is_rename else {}),
            drops,
            fills=fills,
            column_ids=column_ids.with_schema(schema, names),
        )

    def _free_texts(
        self,
        found: Sequence[Mapping[str, Any]],
        renames: Mapping[str, str],
        policy: Mapping[str, str],
    ) -> list[EvolutionStep]:
        """Returns steps for columns that take only some texts, such as JSON, and get others now."""
        layout, table = self.layout, self.schema.table
        kinds = {each["name"]: each["type"] for each in found}
        strict = self.dialect.find_strict_texts(self.connection, layout.table, kinds)
        strict = {self._fold(renames.get(name, name)): sql for name, sql in strict.items()}
        taken = list[EvolutionStep]()
        for column in self.schema.columns:
            name = layout.names[column.name]
            stored = strict.get(self._fold(name), "")
            comes = self.dialect.fit(column, is_key=name in layout.key)
            if not stored or not pa.types.is_string(comes.holds) or comes.sql == stored:
                continue
            if column.name in self.settings.types:  # the user has chosen the target's type
                continue
            free = self.dialect.fit(Column(column.name, pa.string()), is_key=name in layout.key)
            kind = "widen_type" if comes.sql == free.sql else "change_type"
            facts = {"stored": stored, "comes": comes.sql}
            taken.append(step_of(table, kind, column.name, column, policy, **facts))
        return taken

    def _begin(
        self, present: Collection[str], renames: Mapping[str, str], stored: ColumnIds
    ) -> ColumnIds:
        return stored.with_present(self.schema, present, self._fold).begin(renames)

    def _drop_column(self, name: str) -> str:
        table = qualify(self.dialect, self.layout.table)
        return f"ALTER TABLE {table} DROP COLUMN {self.dialect.quote(name)}"

    def _moves(self, renames: Mapping[str, str], ids: Mapping[str, int]) -> list[dict[str, str]]:
        """Returns renames one after the other; columns whose names others get have temporary ones
        in between, so that it shows which renames were made."""
        news = {self._fold(new) for new in renames.values()}
        temporary = {
            old: f"{TEMPORARY}{ids[old]}"
            for old, new in renames.items()
            if self._fold(old) in news - {self._fold(new)}
        }
        last = {temporary.get(old, old): new for old, new in renames.items()}
        return [temporary, last] if temporary else [last]

    def _renaming(self, renames: Mapping[str, str]) -> list[str]:
        statements: list[str] = []
        for old, new in renames.items():
            found = self.dialect.rename_column(self.layout.table, old, new)
            if found is None:
                raise RebuildNeeded(
                    "the database cannot rename the column in place",
                    table=str(self.schema.table),
                    column=old,
                    becomes=new,
                    hint=REBUILD,
                )
            statements += found
        return statements

    def _alter(self, step: EvolutionStep, *, stored: pa.DataType | None) -> list[str]:
        layout, column = self.layout, self.schema.column(step.column)
        name, kind = layout.names[step.column], self._sql_type(column)
        if step.action is EvolutionAction.ADD:
            table = qualify(self.dialect, layout.table)
            return [f"ALTER TABLE {table} ADD COLUMN {self.dialect.quote(name)} {kind}"]
        if step.action is EvolutionAction.LOOSEN:
            statements = self.dialect.loosen(layout.table, name, kind)
        elif stored is not None and _is_into_text(step, stored):
            statements = self.dialect.write_as_text(
                layout.table, name, stored=stored, comes=column.type
            )
            statements = None if name in layout.key else statements
        else:
            statements = self.dialect.widen(layout.table, name, kind)
        if statements is None:
            raise RebuildNeeded(
                "the database cannot change the column in place",
                table=str(self.schema.table),
                column=step.column,
                wanted=kind,
                hint=REBUILD,
            )
        return statements

    def rekey(self, mark: OwnershipMark) -> Sequence[str]:
        """Returns nothing if the key is right, or if the database cannot change it."""
        existing, wanted = self._existing_key(), self.layout.key
        if [*map(self._fold, existing)] == [*map(self._fold, wanted)]:
            return ()
        kinds = columns_of(self.dialect, self.schema, self.layout, self.settings)
        key = {name: kinds[name] for name in wanted}
        return self.dialect.rekey(self.connection, self.layout.table, key, mark=mark) or ()

    def _existing_key(self) -> list[str]:
        import sqlalchemy as sa

        table = self.layout.table
        where = table.namespace or None
        found = sa.inspect(self.connection).get_pk_constraint(table.name, schema=where)
        key = found["constrained_columns"]
        if self.dialect.name == "mysql":  # SQLAlchemy leaves doubled quotes in column names
            key = [name.replace("``", "`") for name in key]
        return key

    def _columns(self) -> list[dict[str, Any]]:
        """Returns the table's columns as SQLAlchemy describes them."""
        import sqlalchemy as sa

        table = self.layout.table
        where = table.namespace or None
        found: Any = sa.inspect(self.connection).get_columns(table.name, schema=where)
        if self.dialect.name == "mysql":  # SQLAlchemy leaves doubled quotes in column names
            return [{**each, "name": each["name"].replace("``", "`")} for each in found]
        return list(found)

    def _reflect(
        self,
        found: Sequence[Mapping[str, Any]],
        renames: Mapping[str, str],
        kept: Collection[str],
    ) -> tuple[list[Column], dict[str, str], list[str]]:
        """Returns the table's columns under the source's names, without ours; the renames to make;
        and columns whose names others get. `kept` are folded names of columns that the source
        has.

        Raises if the table was made for another purpose.
        """
        layout, key = self.layout, self._existing_key()
        own = {each["name"] for each in found if self._is_own(each["name"])}
        if own != OWN_COLUMNS[layout.mode].keys():
            raise SchemaRefused(
                "the table was made for another mode",
                table=str(self.schema.table),
                mode=layout.mode,
                hint=REBUILD,
            )
        if [self._fold(name) for name in key] != [self._fold(name) for name in layout.key]:
            raise RebuildNeeded(
                "the target table has another key",
                table=str(self.schema.table),
                stored=tuple(key),
                comes=layout.key,
                hint=REBUILD,
            )
        present = [each["name"] for each in found]
        renames = self._without_made(renames, present)
        replaced = self._find_replaced(renames, present, kept)
        sources = {self._fold(short): name for name, short in layout.names.items()}
        sources |= {self._fold(old): sources[self._fold(new)] for old, new in renames.items()}
        columns = []
        for each in found:
            if each["name"] in own or each["name"] in replaced:
                continue
            name = sources.get(self._fold(each["name"]), each["name"])
            columns.append(Column(name, self._stored_type_of(name, each)))
            if not each["nullable"] and each["name"] not in key:
                columns[-1] = replace(columns[-1], is_nullable=False)
        return columns, renames, replaced

    def _without_made(self, renames: Mapping[str, str], there: Collection[str]) -> dict[str, str]:
        """Returns the renames not yet made; some may have been made before without the rows.
        Raises if one was made to a name that the column does not have any more."""
        present = {*map(self._fold, there)}
        for old, new in renames.items():
            if not present & {self._fold(old), self._fold(new)}:
                raise RebuildNeeded(
                    "a column to be renamed is missing in the target",
                    table=str(self.schema.table),
                    stored=old,
                    comes=new,
                    hint=REBUILD,
                )
        return {old: new for old, new in renames.items() if self._fold(old) in present}

    def _find_replaced(
        self,
        renames: Mapping[str, str],
        there: Sequence[str],
        kept: Collection[str],
    ) -> list[str]:
        """Returns columns of the target that the source does not have, and whose names others get:
        readers of the log do not have their values either."""
        olds = {*map(self._fold, renames)}
        news = {self._fold(new): old for old, new in renames.items()}
        found = [name for name in there if self._fold(name) in news.keys() - olds]
        for name in found:
            if self._fold(name) in kept:
                raise RebuildNeeded(
                    "a column has the name of another one that the target still has",
                    table=str(self.schema.table),
                    stored=news[self._fold(name)],
                    comes=name,
                    hint=REBUILD,
                )
        return found

    def _sql_type(self, column: Column) -> str:
        return sql_type_of(self.dialect, column, self.layout, self.settings)

    def _stored_type_of(self, name: str, found: object) -> pa.DataType:
        """Returns the type of an existing column; the source's wanted type if unknown."""
        assert isinstance(found, dict)
        stored = self.dialect.arrow_type(found["type"])
        names = self.layout.names
        if name not in names:
            return stored or pa.string()
        if stored is not None and name not in self.settings.types:
            return stored
        is_key = names[name] in self.layout.key
        return self.dialect.fit(self.schema.column(name), is_key=is_key).holds

    def _is_own(self, name: str) -> bool:
        folded = self._fold(name)
        return folded.startswith(OWN) and not folded.startswith(TEMPORARY)

    def _fold(self, name: str) -> str:
        return name if self.dialect.is_case_sensitive else name.casefold()


def _is_into_text(step: EvolutionStep, stored: pa.DataType) -> bool:
    assert step.becomes is not None, "a column that becomes wider has not gone"
    return bool(pa.types.is_string(step.becomes.type) and not pa.types.is_string(stored))


def cannot_rekey(table: TableId, *, why: str) -> SchemaRefused:
    problem = "the rows that the target keeps cannot have the new key"
    return SchemaRefused(problem, table=str(table), why=why, hint=REBUILD)
