"""The target's tables: their names, their owner, and the form in which rows are written to them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.core_log.foundation.errors import RebuildNeeded, SinkRejected
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.evolution import holds, toward
from headwater.sinks.object_names import (
    OFFSET,
    PARTITION,
    TOPIC,
    VALID_FROM,
    digest_of,
    fit,
    fit_table,
)
from headwater.sinks.sink import SinkContext
from headwater.sinks.sql.dialects.dialect import Dialect, OwnershipMark, qualify
from headwater.sinks.sql.settings import Mode, SqlSettings, SqlTableSettings
from headwater.sinks.sql.table_evolution import SchemaAlteration, TableEvolution
from headwater.sinks.sql.table_layout import (
    SliceForms,
    SqlShadow,
    SqlTableLayout,
    columns_of,
    fit_columns,
)

if TYPE_CHECKING:
    import sqlalchemy as sa


SHADOW, OLD = "__headwater_new", "__headwater_old"
ORIGIN_DIGITS = 12


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
            present = TableEvolution(self.dialect, connection, schema, layout, settings)
            if rekeying := present.rekey(mark):
                return SchemaAlteration(layout, [rekeying], is_of_key=True)
        present = TableEvolution(self.dialect, connection, expected, layout, settings)
        try:
            shaping = present.evolve(
                statements,
                policy=self.context.schema_changes,
                may_drop=may_drop,
                column_ids=stored_ids(mark.generation),
            )
        except RebuildNeeded:
            # Made anew for each of two forms of a slice, the table would never get to its end.
            if self.forms.is_behind(schema) or not is_unfilled(mark.generation):
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

    def _key(self, schema: TableSchema, mode: Mode, names: Mapping[str, str]) -> tuple[str, ...]:
        if mode == "append":
            return (TOPIC, PARTITION, OFFSET)
        key = tuple(names[name] for name in schema.key)
        return (*key, VALID_FROM) if mode == "scd2" else key

    def _mark(self, table: TableId, generation: int) -> OwnershipMark:
        recipe = "" if self.shadow is None else self.shadow.recipe
        return OwnershipMark(
            self.context.pipeline, self.context.name, generation, _origin_of(table), recipe
        )

    def _create(
        self, schema: TableSchema, layout: SqlTableLayout, settings: SqlTableSettings
    ) -> SchemaAlteration:
        statements = self.dialect.create(
            layout.table,
            columns_of(self.dialect, schema, layout, settings),
            key=layout.key,
            mark=self._mark(schema.table, layout.generation),
        )
        return SchemaAlteration(layout, [statements])

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
            stages=[[drop, *created.statements]],
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
        if mark.origin != _origin_of(table):
            raise SinkRejected(
                "two tables of the source have the same target table",
                table=str(table),
                target=str(target_name),
                hint="set `table: '{schema}_{table}'` or `namespace: '{schema}'` in the sink, or "
                "merge them on purpose with `route` and `add_key`",
            )


def _origin_of(table: TableId) -> str:
    return digest_of(f"{table.namespace}\0{table.name}", ORIGIN_DIGITS)
