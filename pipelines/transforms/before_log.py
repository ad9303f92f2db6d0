"""The transforms that come before the log, because what they take away must never enter it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from core_log.changes import TableChanges
from core_log.errors import ConfigError
from core_log.table_schema import TableSchema
from pipelines.file.spec import PipelineHead, TransformRule
from pipelines.transforms.by_schema import BySchema
from pipelines.transforms.masks import mask_text, masked_column, masked_values
from pipelines.transforms.tables import RuleTables


def salt_of(head: PipelineHead) -> bytes:
    """The secret of the pipeline file; without one the pipeline's name, which everybody knows, so
    that hashes are at least stable and differ between pipelines."""
    return (head.salt.get_secret_value() or f"headwater:{head.name}").encode()


class BeforeLog:
    """Masks and drops columns of rows and of the rows before them. What it does belongs to the
    topics' identity: changing it changes what rows of the same name mean."""

    def __init__(
        self, rules: Sequence[TransformRule], *, salt: bytes, is_again: bool = False
    ) -> None:
        """`is_again`: the rows come from the log, so that some of it has been done to them."""
        self._is_again = is_again
        self._rules = [(RuleTables(rule), rule) for rule in rules if rule.mask or rule.drop]
        self._salt = salt
        self._plans = BySchema(self._plan)

    def schema(self, schema: TableSchema) -> TableSchema:
        """How the table looks in the log; raises ConfigError where a rule does not fit it."""
        return self._plans.of(schema).schema

    def apply(self, changes: TableChanges) -> TableChanges:
        plan = self._plans.of(changes.schema)
        if not plan.changes_anything:
            return changes
        rows = pa.RecordBatch.from_arrays(
            [self._hidden(changes.rows.column(kept.name), kept) for kept in plan.kept],
            schema=plan.schema.arrow,
        )
        before = None if changes.before is None else self._before(changes.before, plan)
        return replace(changes, schema=plan.schema, rows=rows, before=before)

    def check(self, now: TableSchema, before: TableSchema) -> None:
        """Raises ConfigError where a form could bring to light what the newest one in the log,
        `before`, hid: under its own name, or as a column of another name that no rule has."""
        rules = [rule for tables, rule in self._rules if tables.match(now.table)]
        named = {name for rule in rules for name in (*rule.mask, *rule.drop)}
        masked = {each.name for each in before.columns if each.mask}
        hidden = masked.union(before.dropped)
        if bare := sorted((masked - named).intersection(now.names)):
            raise ConfigError(
                "a column that was masked is in changes that are yet to come, and no rule masks it",
                hint=f"add {bare[0]} to `mask` of the rule again, beside its later name; then"
                " headwater resume",
                table=str(now.table),
                column=", ".join(bare),
            )
        lost = sorted(hidden & named - set(now.names))
        new = [name for name in now.names if name not in named.union(before.names, hidden)]
        if lost and new:
            raise ConfigError(
                "a column that a rule hides is gone, and one has come that no rule names",
                hint=f"add {new[0]} to `mask` or `drop` of the rule, beside {lost[0]}; or write a"
                f" rule of its own for {now.table}, and leave it out of the other; or undo the"
                " rename; then headwater resume",
                table=str(now.table),
                column=", ".join(lost),
                new=", ".join(new),
            )

    def _present(
        self, tables: RuleTables, wanted: Iterable[str], schema: TableSchema, *, use: str
    ) -> list[str]:
        """A column that is gone from the log needs no hiding."""
        if self._is_again:
            return [name for name in wanted if name in schema.names]
        try:
            return tables.present(wanted, schema, use=use)
        except ConfigError as error:
            pattern = f"/{str(schema.table).replace('.', '[.]')}/"
            hint = f"{error.hint}; has it got another name, write the table as {pattern} and both"
            hint += " names into the rule, then headwater resume"
            raise ConfigError(error.problem, hint=hint, **error.facts) from None

    def _before(self, before: pa.StructArray, plan: "_Plan") -> pa.StructArray:
        present = {field.name for field in before.type}
        kept = [each for each in plan.kept if each.name in present]
        types = plan.schema.arrow
        return pa.StructArray.from_arrays(
            # struct_field and not .field(): a row that is null as a whole hides nothing in there.
            [self._hidden(pc.struct_field(before, each.name), each) for each in kept],
            fields=[types.field(each.name) for each in kept],
            mask=before.is_null(),
        )

    def _hidden(self, values: pa.Array, kept: "_Kept") -> pa.Array:
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
            for name in self._present(tables, rule.mask, shown, use="mask"):
                columns[name] = masked_column(
                    columns[name],
                    rule.mask[name],
                    is_key=name in schema.key,
                    table=str(schema.table),
                )
                kept[name].masks.append(rule.mask[name])
            for name in self._present(tables, rule.drop, shown, use="drop"):
                if name in schema.key:
                    raise ConfigError(
                        "a column of the key cannot be dropped, since rows must stay apart",
                        hint="mask it by hash, or choose another key under source.keys",
                        table=str(schema.table),
                        column=name,
                    )
                if columns.pop(name, None) is not None:
                    dropped.append(name)
                kept.pop(name, None)
        for name, each in kept.items():
            if each.masks:
                mask, before = mask_text(each.masks, salt=self._salt), schema.column(name)
                columns[name] = replace(columns[name], mask=mask)
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
    """What is done to the tables of one schema."""

    schema: TableSchema
    kept: list[_Kept]
    original: TableSchema

    @property
    def changes_anything(self) -> bool:
        return len(self.kept) < len(self.original.columns) or any(each.masks for each in self.kept)
