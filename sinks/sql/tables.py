"""The target's tables: their wanted form, their owner, and the statements that create or alter
them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded, SchemaRefused, SinkRejected
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import (
    EvolutionAction,
    EvolutionStep,
    holds,
    may_rename,
    steps,
    toward,
)
from headwater.sinks.object_names import fit, fit_table
from headwater.sinks.own_columns import (
    OFFSET,
    OWN,
    PARTITION,
    TOPIC,
    VALID_FROM,
    own_columns,
)
from headwater.sinks.sink import SinkContext
from headwater.sinks.sql.column_names import fit_columns
from headwater.sinks.sql.dialects.dialect import Dialect, qualify
from headwater.sinks.sql.ownership import OwnershipMark, SqlShadow, origin_of
from headwater.sinks.sql.settings import Mode, SqlSettings, SqlTableSettings
from headwater.sinks.sql.slice_forms import SliceForms

if TYPE_CHECKING:
    import sqlalchemy as sa


SHADOW, OLD = "__headwater_new", "__headwater_old"


US = pa.timestamp("us")
OWN_COLUMNS = own_columns(US)
REBUILD = "headwater rebuild PIPELINE/TABLE --swap makes the table anew"


@dataclass(frozen=True, slots=True)
class SqlTableLayout:
    """A table of the target as rows of one schema are written to it."""

    table: TableId
    mode: Mode
    ignores_deletes: bool
    key: tuple[str, ...]
    """Key columns of the target."""
    names: Mapping[str, str]
    """Source column to target column, for those that are written."""
    absent: Mapping[str, pa.DataType | None]
    """Columns of the target that the source no longer has."""
    generation: int
    stays: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Source columns to the target's type that is kept though it does not hold all values. Values
    that would become other values are rejected."""

    @property
    def source_key(self) -> tuple[str, ...]:
        """The target's names of the source's key columns."""
        return tuple(name for name in self.key if not name.startswith(OWN))


class SchemaAlteration(NamedTuple):
    """The steps before rows can be written."""

    layout: SqlTableLayout
    statements: Sequence[str] = ()
    drops: Sequence[str] = ()
    """Statements that may run after the rows."""
    is_of_key: bool = False
    """Whether the statements only change the key; the table is then read again."""
    fills: Mapping[str, Column] = MappingProxyType({})
    """Columns of the target that get the source column's value in existing rows."""
    column_ids: ColumnIds = ColumnIds()
    """The ids of its columns afterwards."""
    renamed: ColumnIds | None = None
    """The same behind `statements` alone, if these rename any."""


@dataclass(slots=True)
class SqlTables:
    """Tables of the target. Each is read once per connection, until `forget`."""

    dialect: Dialect
    settings: SqlSettings
    context: SinkContext
    shadow: SqlShadow | None = None
    forms: SliceForms = field(default_factory=SliceForms)
    _layouts: dict[TableId, tuple[TableSchema, SqlTableLayout]] = field(default_factory=dict)

    def forget(self) -> None:
        self._layouts.clear()

    def live(self, table: TableId) -> TableId:
        return fit_table(
            table,
            namespace=self.settings.namespace,
            name=self.settings.table,
            bytes_max=self.dialect.name_bytes_max,
        )

    def target_name(self, table: TableId) -> TableId:
        """Returns the table to write to: the copy while a rebuild is in progress."""
        live = self.live(table)
        return live if self.shadow is None else self.beside(live, SHADOW)

    def beside(self, live: TableId, suffix: str) -> TableId:
        name = fit(live.name, bytes_max=self.dialect.name_bytes_max, suffix=suffix)
        return live._replace(name=name)

    def find_layout(self, schema: TableSchema) -> SqlTableLayout | None:
        cached = self._layouts.get(schema.table)
        is_same = cached is not None and (cached[0] is schema or cached[0] == schema)
        return cached[1] if cached is not None and is_same else None

    def remember(self, schema: TableSchema, layout: SqlTableLayout) -> None:
        self._layouts[schema.table] = (schema, layout)

    def plan_layout(
        self,
        connection: "sa.Connection",
        schema: TableSchema,
        *,
        next_generation: int,
        may_drop: bool,
        may_rekey: bool = False,
        stored_ids: Callable[[int], ColumnIds] = lambda _: ColumnIds(),
        is_unfilled: Callable[[int], bool] = lambda _: False,
    ) -> SchemaAlteration:
        """Returns the target table's form and its alteration for rows of `schema`.

        `may_rekey`: all its rows came under another key, and none will come under that key.
        `stored_ids` returns the stored columns of a generation; `is_unfilled` whether no slice was
        ever applied to it.
        """
        settings = self.settings.of(str(schema.table))
        target_name = self.target_name(schema.table)
        mode: Mode = settings.mode if schema.key else "append"
        names = self.forms.find_names(schema, self._names)
        schema = replace(schema, columns=tuple(c for c in schema.columns if c.name in names))
        layout = SqlTableLayout(
            target_name,
            mode,
            mode == "mirror" and settings.deletes == "ignore",
            self._key(schema, mode, names),
            names,
            {},
            next_generation,
        )
        expected = self._expected_schema(schema, settings)
        found = self.dialect.find(connection, target_name)
        if found is None:
            layout = replace(layout, stays=self._find_outgrown(schema, expected, layout))
            created = self._create(expected, layout, settings)
            return created._replace(column_ids=ColumnIds().with_schema(schema, names))
        mark = found.mark
        statements: list[str] = []
        if mark is None:
            mark = self._mark(schema.table, next_generation if self.dialect.keeps_marks else 1)
            if self.dialect.keeps_marks:
                statements = self._claim(schema.table, target_name, mark, is_empty=found.is_empty)
        self._check_owner(target_name, mark, schema.table)
        layout = replace(layout, generation=mark.generation)
        if may_rekey and not statements:
            rekeying = self._rekeying(connection, schema, layout, settings, mark)
            if rekeying:
                return SchemaAlteration(layout, rekeying, is_of_key=True)
        column_ids = stored_ids(mark.generation)
        try:
            shaping = self._evolve(
                connection,
                expected,
                layout,
                settings,
                statements,
                may_drop=may_drop,
                column_ids=column_ids,
            )
        except RebuildNeeded:
            if not is_unfilled(mark.generation):
                raise
            return self._create_anew(schema, expected, layout, settings)
        stays = {**shaping.layout.stays, **self._find_outgrown(schema, expected, shaping.layout)}
        return shaping._replace(layout=replace(shaping.layout, stays=stays))

    def _names(self, schema: TableSchema) -> dict[str, str]:
        return fit_columns(
            schema.table,
            schema.names,
            bytes_max=self.dialect.name_bytes_max,
            is_case_sensitive=self.dialect.is_case_sensitive,
        )

    def _expected_schema(self, schema: TableSchema, settings: SqlTableSettings) -> TableSchema:
        """Returns the schema for which the table is made; for a copy, the last one."""
        newest = None if self.shadow is None else self.shadow.newest
        expected = toward(schema, newest)
        given = {name: schema.column(name) for name in settings.types if name in schema.names}
        return replace(
            expected, columns=tuple(given.get(each.name, each) for each in expected.columns)
        )

    def _find_outgrown(
        self, schema: TableSchema, expected: TableSchema, layout: SqlTableLayout
    ) -> dict[str, pa.DataType]:
        """Returns columns whose values come in a former type, with the copy's type."""
        found: dict[str, pa.DataType] = {}
        for column, becomes in zip(schema.columns, expected.columns, strict=True):
            if column.name not in layout.names or column.type == becomes.type:
                continue
            is_key = layout.names[column.name] in layout.key
            kind = self.dialect.fit(becomes, is_key=is_key).holds
            if not pa.types.is_string(kind) and not holds(
                kind, self.dialect.fit(column, is_key=is_key).holds
            ):
                found[column.name] = kind
        return found

    def columns(
        self, schema: TableSchema, layout: SqlTableLayout, settings: SqlTableSettings
    ) -> dict[str, str]:
        """Returns columns of the target with their types there."""
        found = {
            layout.names[column.name]: self._sql_type(column, layout, settings)
            for column in schema.columns
        }
        for name, kind in OWN_COLUMNS[layout.mode].items():
            found[name] = self.dialect.fit(Column(name, kind), is_key=name in layout.key).sql
        return found

    def _sql_type(self, column: Column, layout: SqlTableLayout, settings: SqlTableSettings) -> str:
        is_key = layout.names[column.name] in layout.key
        return settings.types.get(column.name) or self.dialect.fit(column, is_key=is_key).sql

    def _key(self, schema: TableSchema, mode: Mode, names: Mapping[str, str]) -> tuple[str, ...]:
        if mode == "append":
            return (TOPIC, PARTITION, OFFSET)
        key = tuple(names[name] for name in schema.key)
        return (*key, VALID_FROM) if mode == "scd2" else key

    def _mark(self, table: TableId, generation: int) -> OwnershipMark:
        recipe = "" if self.shadow is None else self.shadow.recipe
        return OwnershipMark(
            self.context.pipeline, self.context.name, generation, origin_of(table), recipe
        )

    def _create(
        self, schema: TableSchema, layout: SqlTableLayout, settings: SqlTableSettings
    ) -> SchemaAlteration:
        statements = self.dialect.create(
            layout.table,
            self.columns(schema, layout, settings),
            key=layout.key,
            mark=self._mark(schema.table, layout.generation),
        )
        return SchemaAlteration(layout, statements)

    def _create_anew(
        self,
        schema: TableSchema,
        expected: TableSchema,
        layout: SqlTableLayout,
        settings: SqlTableSettings,
    ) -> SchemaAlteration:
        """In a new generation: should another process fill the former table, its offsets count no
        more."""
        layout = replace(layout, generation=layout.generation + 1)
        created = self._create(expected, layout, settings)
        drop = f"DROP TABLE {qualify(self.dialect, layout.table)}"
        return created._replace(
            statements=[drop, *created.statements],
            column_ids=ColumnIds().with_schema(schema, layout.names),
        )

    def _claim(
        self, table: TableId, target_name: TableId, mark: OwnershipMark, *, is_empty: bool
    ) -> list[str]:
        claim = self.dialect.claim(target_name, mark) if is_empty else None
        if claim is None:
            raise SinkRejected(
                "a table of this name exists, and no pipeline made it",
                table=str(table),
                target=str(target_name),
                hint="rename or drop it, or choose another name with `route` or `table:`",
            )
        return claim

    def _check_owner(self, target_name: TableId, mark: OwnershipMark, table: TableId) -> None:
        if (mark.pipeline, mark.sink) != (self.context.pipeline, self.context.name):
            raise SinkRejected(
                "the table belongs to another pipeline or sink",
                table=str(table),
                target=str(target_name),
                owner=f"{mark.pipeline}/{mark.sink}",
                hint="give one of them another name with `route`, `table:` or `namespace:`",
            )
        if mark.origin != origin_of(table):
            raise SinkRejected(
                "two tables of the source have the same target table",
                table=str(table),
                target=str(target_name),
                hint="set `table: '{schema}_{table}'` or `namespace: '{schema}'` in the sink, or "
                "merge them on purpose with `route` and `add_key`",
            )

    def _evolve(
        self,
        connection: "sa.Connection",
        schema: TableSchema,
        layout: SqlTableLayout,
        settings: SqlTableSettings,
        statements: list[str],
        *,
        may_drop: bool,
        column_ids: ColumnIds,
    ) -> SchemaAlteration:
        policy = dict(self.context.schema_changes)
        renames = column_ids.find_renames(schema, layout.names) if may_rename(policy) else {}
        kept = {self._fold(name) for name in column_ids.find_kept(schema)}
        planned = renames
        there, renames, replaced = self._reflect(
            connection, layout, schema, settings, renames, kept
        )
        statements = [
            *statements,
            *(self._drop_column(layout, name) for name in replaced),
            *self._renaming(schema, layout, renames),
        ]
        is_history = layout.mode != "mirror"
        if policy.get("drop_column", "evolve") == "evolve" and (is_history or not may_drop):
            policy["drop_column"] = "lenient"  # existing rows stay readable
        is_key = {name: layout.names[name] in layout.key for name in schema.names}
        wanted = TableSchema(
            schema.table,
            tuple(
                replace(column, type=self.dialect.fit(column, is_key=is_key[column.name]).holds)
                for column in schema.columns
            ),
            schema.key,
        )
        taken = steps(schema.table, present=there, wanted=wanted, policy=policy, comes=schema)
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
                drops.append(self._drop_column(layout, step.column))
                absent[step.column] = types[step.column]
            else:
                statements = statements + self._alter(
                    schema, layout, settings, step, stored=types.get(step.column)
                )
        if self.dialect.has_transactional_ddl and drops:
            dropped = {step.column for step in taken if step.action is EvolutionAction.DROP}
            absent = {name: kind for name, kind in absent.items() if name not in dropped}
        layout = replace(layout, names=names, absent=absent, stays=stays)
        fills = column_ids.find_fills(schema, names)
        return SchemaAlteration(
            layout,
            statements,
            drops,
            fills=fills,
            column_ids=column_ids.with_schema(schema, names),
            renamed=column_ids.with_renames(schema, planned, gone=replaced) if planned else None,
        )

    def _drop_column(self, layout: SqlTableLayout, name: str) -> str:
        table = qualify(self.dialect, layout.table)
        return f"ALTER TABLE {table} DROP COLUMN {self.dialect.quote(name)}"

    def _renaming(
        self, schema: TableSchema, layout: SqlTableLayout, renames: Mapping[str, str]
    ) -> list[str]:
        """Yields renames; names that move between columns pass through temporary names of ours."""
        olds = {self._fold(name) for name in renames}
        pairs: list[tuple[str, str]] = []
        later: list[tuple[str, str]] = []
        for target_name, (old, new) in enumerate(renames.items()):
            if self._fold(new) not in olds:
                pairs.append((old, new))
                continue
            between = f"{OWN}renamed_{target_name}"
            pairs.append((old, between))
            later.append((between, new))
        statements: list[str] = []
        for old, new in [*pairs, *later]:
            found = self.dialect.rename_column(layout.table, old, new)
            if found is None or (later and not self.dialect.has_transactional_ddl):
                raise RebuildNeeded(
                    "the database cannot rename these columns in place",
                    table=str(schema.table),
                    columns=tuple(renames),
                    become=tuple(renames.values()),
                    hint=REBUILD,
                )
            statements += found
        return statements

    def _alter(
        self,
        schema: TableSchema,
        layout: SqlTableLayout,
        settings: SqlTableSettings,
        step: EvolutionStep,
        *,
        stored: pa.DataType | None,
    ) -> list[str]:
        name, column = layout.names[step.column], schema.column(step.column)
        kind = self._sql_type(column, layout, settings)
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
                table=str(schema.table),
                column=step.column,
                wanted=kind,
                hint=REBUILD,
            )
        return statements

    def _existing_key(self, connection: "sa.Connection", layout: SqlTableLayout) -> list[str]:
        import sqlalchemy as sa

        where = layout.table.namespace or None
        found = sa.inspect(connection).get_pk_constraint(layout.table.name, schema=where)
        key = found["constrained_columns"]
        if self.dialect.name == "mysql":  # SQLAlchemy leaves doubled quotes in column names
            key = [name.replace("``", "`") for name in key]
        return key

    def _rekeying(
        self,
        connection: "sa.Connection",
        schema: TableSchema,
        layout: SqlTableLayout,
        settings: SqlTableSettings,
        mark: OwnershipMark,
    ) -> Sequence[str]:
        """Returns nothing if the key is right, or if the database cannot change it."""
        existing, wanted = self._existing_key(connection, layout), layout.key
        if [*map(self._fold, existing)] == [*map(self._fold, wanted)]:
            return ()
        kinds = self.columns(schema, layout, settings)
        key = {name: kinds[name] for name in wanted}
        return self.dialect.rekey(connection, layout.table, key, mark=mark) or ()

    def _reflect(
        self,
        connection: "sa.Connection",
        layout: SqlTableLayout,
        schema: TableSchema,
        settings: SqlTableSettings,
        renames: Mapping[str, str],
        kept: Collection[str],
    ) -> tuple[list[Column], dict[str, str], list[str]]:
        """Reads the table's columns under the source's names, without ours; the renames to make;
        and columns whose names others get. `kept` are folded names of columns that the source
        has.

        Raises if the table was made for another purpose.
        """
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        where = layout.table.namespace or None
        found = inspector.get_columns(layout.table.name, schema=where)
        key = self._existing_key(connection, layout)
        if self.dialect.name == "mysql":  # SQLAlchemy leaves doubled quotes in column names
            found = [{**each, "name": each["name"].replace("``", "`")} for each in found]
        own = {each["name"] for each in found if self._fold(each["name"]).startswith(OWN)}
        if own != OWN_COLUMNS[layout.mode].keys():
            raise SchemaRefused(
                "the table was made for another mode",
                table=str(schema.table),
                mode=layout.mode,
                hint=REBUILD,
            )
        if [self._fold(name) for name in key] != [self._fold(name) for name in layout.key]:
            raise RebuildNeeded(
                "the target table has another key",
                table=str(schema.table),
                stored=tuple(key),
                comes=layout.key,
                hint=REBUILD,
            )
        present = [each["name"] for each in found]
        renames = self._without_made(schema, renames, present)
        replaced = self._find_replaced(schema, renames, present, kept)
        sources = {self._fold(short): name for name, short in layout.names.items()}
        sources |= {self._fold(old): sources[self._fold(new)] for old, new in renames.items()}
        columns = []
        for each in found:
            if each["name"] in own or each["name"] in replaced:
                continue
            name = sources.get(self._fold(each["name"]), each["name"])
            columns.append(Column(name, self._stored_type_of(name, each, schema, layout, settings)))
            if not each["nullable"] and each["name"] not in key:
                columns[-1] = replace(columns[-1], is_nullable=False)
        return columns, renames, replaced

    def _without_made(
        self, schema: TableSchema, renames: Mapping[str, str], there: Collection[str]
    ) -> dict[str, str]:
        """Returns the renames not yet made; some may have been made before without the rows.
        Raises if one was made to a name that the column does not have any more."""
        present = {*map(self._fold, there)}
        for old, new in renames.items():
            if not present & {self._fold(old), self._fold(new)}:
                raise RebuildNeeded(
                    "a column to be renamed is missing in the target",
                    table=str(schema.table),
                    stored=old,
                    comes=new,
                    hint=REBUILD,
                )
        return {old: new for old, new in renames.items() if self._fold(old) in present}

    def _find_replaced(
        self,
        schema: TableSchema,
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
                    table=str(schema.table),
                    stored=news[self._fold(name)],
                    comes=name,
                    hint=REBUILD,
                )
        return found

    def _stored_type_of(
        self,
        name: str,
        found: object,
        schema: TableSchema,
        layout: SqlTableLayout,
        settings: SqlTableSettings,
    ) -> pa.DataType:
        """Returns the type of an existing column; the source's wanted type if unknown."""
        assert isinstance(found, dict)
        stored = self.dialect.arrow_type(found["type"])
        if name not in layout.names:
            return stored or pa.string()
        if stored is not None and name not in settings.types:
            return stored
        is_key = layout.names[name] in layout.key
        return self.dialect.fit(schema.column(name), is_key=is_key).holds

    def _fold(self, name: str) -> str:
        return name if self.dialect.is_case_sensitive else name.casefold()


def _is_into_text(step: EvolutionStep, stored: pa.DataType) -> bool:
    assert step.becomes is not None, "a column that becomes wider has not gone"
    return bool(pa.types.is_string(step.becomes.type) and not pa.types.is_string(stored))


def cannot_rekey(table: TableId, *, why: str) -> SchemaRefused:
    problem = "the rows that the target keeps cannot have the new key"
    return SchemaRefused(problem, table=str(table), why=why, hint=REBUILD)
