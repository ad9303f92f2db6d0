"""The transforms that come after the log: changing them is a replay, and no new snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Lock, Thread

import pyarrow as pa

from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.spec import RouteRule, TransformRule
from headwater.pipelines.transforms.columns import Add, Cast, Rename
from headwater.pipelines.transforms.expressions import Expressions
from headwater.pipelines.transforms.functions import PythonStep, UserFunction
from headwater.pipelines.transforms.routes import Routes
from headwater.pipelines.transforms.row_filter import Filter
from headwater.pipelines.transforms.rows import BySchema, RuleTables, TransformStep


class RowTransforms:
    """Every rule that matches a table applies, in the order of the file; of one rule first
    `filter`, then `add`, `rename`, `cast` and `python`. Routes come last and change names only.

    Threads come one after the other. Raises RecordsRejected for single records, TransformFailed or
    ConfigError when a table as a whole cannot be transformed.
    """

    def __init__(
        self,
        rules: Sequence[TransformRule],
        routes: Sequence[RouteRule],
        *,
        directory: Path | None = None,
        expressions: Expressions | None = None,
    ) -> None:
        """`directory`, that of the pipeline file, is where python transforms are looked for."""
        self._given_expressions = expressions
        self._rules = [(RuleTables(rule), rule) for rule in rules]
        self._functions = {
            rule.python: UserFunction(rule.python, directory=directory)
            for rule in rules
            if rule.python
        }
        self._routes = Routes(routes)
        self._plans = BySchema(self._plan)
        self._busy = Lock()
        self._is_prepared = False

    def prepare(self) -> None:
        """Loads DuckDB in a thread, while the first changes are fetched and decoded."""
        if not self._is_prepared and any(rule.filter or rule.add for _, rule in self._rules):
            Thread(target=self._load, name="expressions").start()
        self._is_prepared = True

    def _load(self) -> None:
        with self._busy, suppress(Exception):  # whoever computes first is told
            _ = self._expressions

    @property
    def is_sql(self) -> bool:
        """Code of the user's may hold what belongs to its thread, such as a connection."""
        return bool(self._rules) and not self._functions

    @property
    def filters(self) -> bool:
        """Whether rows may be left out."""
        return any(rule.filter for _, rule in self._rules)

    def schema(self, schema: TableSchema) -> TableSchema:
        """How a table of the log looks at the target, and what it is called there."""
        return self._plans.of(schema).target

    def apply(self, changes: TableChanges, *, may_have_gaps: bool = False) -> list[TableChanges]:
        """The changes as the target gets them; nothing when none is left.

        `may_have_gaps`: compaction may have removed changes that the target has not seen, a delete
        before a new row of its key among them. A row that does not pass a filter is then deleted
        even where it seems to be new.
        """
        with self._busy:
            return self._apply(changes, may_have_gaps=may_have_gaps)

    def _apply(self, changes: TableChanges, *, may_have_gaps: bool) -> list[TableChanges]:
        plan = self._plans.of(changes.schema)
        if changes.is_truncate:
            nothing = [pa.nulls(1, column.type) for column in plan.schema.columns]
            rows = pa.RecordBatch.from_arrays(nothing, schema=plan.schema.arrow)
            changes = replace(changes, schema=plan.schema, rows=rows, before=None)
            return [self._routes.apply(changes, plan.target)]
        for step in plan.steps:
            if isinstance(step, Filter):
                changes = step.sift(changes, takes_back_all=may_have_gaps)
            else:
                changes = step.apply(changes)
            if not len(changes):
                return []
        return [self._routes.apply(changes, plan.target)]

    @cached_property
    def _expressions(self) -> Expressions:
        """Most pipelines need no DuckDB and never load it."""
        return self._given_expressions or Expressions()

    def _plan(self, schema: TableSchema) -> "_Plan":
        steps: list[TransformStep] = []
        original = schema
        for tables, rule in self._rules:
            if tables.match(original.table):
                for step in self._steps(tables, rule, schema):
                    steps.append(step)
                    schema = step.schema
        target = self._routes.schema(schema)
        return _Plan(tuple(steps), schema, schema if target == schema else target)

    def _steps(
        self, tables: RuleTables, rule: TransformRule, schema: TableSchema
    ) -> Iterator[TransformStep]:
        step: TransformStep
        if rule.filter:
            yield Filter(rule.filter, schema, self._expressions, ms_max=rule.time_ms_max)
        if rule.add:
            yield (step := Add(rule.add, schema, self._expressions, ms_max=rule.time_ms_max))
            schema = step.schema
        if names := tables.present(rule.rename, schema, use="rename"):
            yield (step := Rename({name: rule.rename[name] for name in names}, schema))
            schema = step.schema
        if names := tables.present(rule.cast, schema, use="cast"):
            yield (step := Cast({name: rule.cast[name] for name in names}, schema))
            schema = step.schema
        if rule.python:
            yield PythonStep(self._functions[rule.python], schema)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is done to the changes of one schema."""

    steps: tuple[TransformStep, ...]
    schema: TableSchema
    """After the steps."""
    target: TableSchema
    """After the routes; the same object where they change nothing."""
