"""The transforms that come before the log, because what they take away must never enter it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.column_history import missing_text, missing_value
from headwater.core_log.model.table_schema import Column, DroppedColumn, TableId, TableSchema
from headwater.pipelines.file.spec import PipelineHead, TransformRule
from headwater.pipelines.transforms.masks import (
    check_hidden,
    check_renamed,
    hidden_columns,
    mask_text,
    masked_column,
    masked_values,
)
from headwater.pipelines.transforms.rows import BySchema, RuleTables


def salt_of(head: PipelineHead) -> bytes:
    """The secret of the pipeline file; without one the pipeline's name, which everybody knows, so
    that hashes are at least stable and differ between pipelines."""
    return (head.salt.get_secret_value() or f"headwater:{head.name}").encode()


class MasksAndDrops:
    """Masks and drops columns of rows and of the rows before them. Its rules belong to the topics'
    identity: changing them changes what rows of the same name mean."""

    def __init__(
        self, rules: Sequence[TransformRule], *, salt: bytes, is_again: bool = False
    ) -> None:
        """`is_again`: the rows come from the log, so that some of it has been done to them."""
        self._is_again = is_again
        self._rules = [(RuleTables(rule), rule) for rule in rules if rule.mask or rule.drop]
        self._salt = salt
        self._followed: dict[TableId, dict[tuple[int, int], list[str]]] = {}
        """The names in rules of the columns that they hid, by the ids of table and column."""
        self._plans = BySchema(self._plan)

    def schema(self, schema: TableSchema) -> TableSchema:
        """How the table looks in the log; raises ConfigError where a rule does not fit it."""
        return self._plans.of(schema).schema

    def apply(self, changes: TableChanges) -> TableChanges:
        plan = self._plans.of(changes.schema)
        if not plan.changes_anything:
            return changes
        rows = pa.RecordBatch.from_arrays(
            [self._hide(changes.rows.column(kept.name), kept) for kept in plan.kept],
            schema=plan.schema.arrow,
        )
        before = None if changes.before is None else self._before(changes.before, plan)
        return replace(changes, schema=plan.schema, rows=rows, before=before)

    def follow(self, stored: TableSchema) -> None:
        """Columns that were hidden in this form of the log are hidden under any later name as
        well."""
        known = self._followed.setdefault(stored.table, {})
        for each in hidden_columns(stored):
            names = known.setdefault((stored.id, each.id), [])
            name = each.rule_name or each.name
            if stored.id and each.id and name not in names:
                names.append(name)
                self._plans = BySchema(self._plan)

    def check(self, now: TableSchema, before: TableSchema) -> None:
        """Raises ConfigError where a form could bring to light what the newest one in the log,
        `before`, hid."""
        check_hidden(self.schema(now), before, named=self._named(now.table))

    @property
    def hides_anything(self) -> bool:
        return bool(self._rules)

    def check_renamed(self, now: TableSchema, former: TableSchema, *, is_gone: bool) -> None:
        """Raises ConfigError where a table could bring to light what `former`, a form of the log
        that may be of the same table under another name, hid."""
        check_renamed(self.schema(now), former, named=self._named(former.table), is_gone=is_gone)

    def _named(self, table: TableId) -> set[str]:
        rules = [rule for tables, rule in self._rules if tables.match(table)]
        return {name for rule in rules for name in (*rule.mask, *rule.drop)}

    def _find(
        self, tables: RuleTables, wanted: Iterable[str], schema: TableSchema, *, use: str
    ) -> list[tuple[str, str]]:
        """Columns, each with what the rule calls it. One that is gone from the log needs no
        hiding."""
        wanted, called = list(wanted), dict[str, str]()
        followed = self._followed.get(schema.table, {})
        for column in schema.columns:
            names = [column.name, column.rule_name, *followed.get((schema.id, column.id), ())]
            if name := next((each for each in names if each in wanted), None):
                called[column.name] = name
        missing = [name for name in wanted if name not in called.values()]
        try:
            if not self._is_again:
                tables.present(missing, schema, use=use)
        except ConfigError as error:
            pattern = f"/{str(schema.table).replace('.', '[.]')}/"
            hint = f"{error.hint}; has it got another name, write the table as {pattern} and both"
            hint += " names into the rule, then headwater resume PIPELINE"
            raise ConfigError(error.problem, hint=hint, **error.facts) from None
        return [
            (column, name) for each in wanted for column, name in called.items() if name == each
        ]

    def _before(self, before: pa.StructArray, plan: "_Plan") -> pa.StructArray:
        present = {field.name for field in before.type}
        kept = [each for each in plan.kept if each.name in present]
        types = plan.schema.arrow
        return pa.StructArray.from_arrays(
            # struct_field and not .field(): a row that is null as a whole hides nothing in there.
            [self._hide(pc.struct_field(before, each.name), each) for each in kept],
            fields=[types.field(each.name) for each in kept],
            mask=before.is_null(),
        )

    def _hidden_missing(self, before: Column, after: Column, kept: "_Kept") -> str | None:
        """The value of rows that are older than the column is as secret as others."""
        if before.missing is None:
            return None
        values = self._hide(pa.array([missing_value(before)], before.type), kept)
        return missing_text(values[0].cast(after.type))

    def _hide(self, values: pa.Array, kept: "_Kept") -> pa.Array:
        for mask in kept.masks:
            values = masked_values(values, mask, salt=self._salt)
        return values

    def _plan(self, schema: TableSchema) -> "_Plan":
        kept = {name: _Kept(name) for name in schema.names}
        columns, dropped = {column.name: column for column in schema.columns}, [*schema.dropped]
        for tables, rule in self._rules:
            if not tables.match(schema.table):
                continue
            shown = replace(schema, columns=tuple(columns.values()))
            for name, called in self._find(tables, rule.mask, shown, use="mask"):
                masked = masked_column(
                    columns[name],
                    rule.mask[called],
                    is_key=name in schema.key,
                    table=str(schema.table),
                )
                columns[name] = replace(masked, rule_name="" if called == name else called)
                kept[name].masks.append(rule.mask[called])
            for name, called in self._find(tables, rule.drop, shown, use="drop"):
                if name in schema.key:
                    raise ConfigError(
                        "a key column cannot be dropped, because the key must stay unique",
                        hint="mask it by hash, or choose another key under source.keys",
                        table=str(schema.table),
                        column=name,
                    )
                if (column := columns.pop(name, None)) is not None:
                    former = "" if called == name else called
                    dropped.append(DroppedColumn(name, column.id, former))
                kept.pop(name, None)
        for name, each in kept.items():
            if each.masks:
                mask, before = mask_text(each.masks, salt=self._salt), schema.column(name)
                missing = self._hidden_missing(before, columns[name], each)
                columns[name] = replace(columns[name], mask=mask, missing=missing)
                if before.mask == mask:
                    columns[name] = before
                    each.masks.clear()
        hidden = replace(schema, columns=tuple(columns.values()), dropped=tuple(dropped))
        return _Plan(hidden, list(kept.values()), schema)


@dataclass(slots=True)
class _Kept:
    """A column that enters the log, and what hides its values, in order."""

    name: str
    masks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The steps for the tables of one schema."""

    schema: TableSchema
    kept: list[_Kept]
    original: TableSchema

    @property
    def changes_anything(self) -> bool:
        return len(self.kept) < len(self.original.columns) or any(each.masks for each in self.kept)
