"""The transforms that come after the log: changing them is a replay, and no new snapshot."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from threading import Lock, Thread

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.file.spec import RouteRule, TransformRule
from headwater.pipelines.transforms.columns import Add, Cast, Rename, answers_of, parsed_type
from headwater.pipelines.transforms.expressions import (
    MS_MAX,
    Expressions,
)
from headwater.pipelines.transforms.functions import PythonStep, UserFunction
from headwater.pipelines.transforms.routes import Routes
from headwater.pipelines.transforms.rows import (
    BySchema,
    RuleTables,
    TransformStep,
    is_operation,
)

DELETE = pa.scalar(int(Operation.DELETE), pa.uint8())
Problem = tuple[tuple[str | int, ...], str, str]
"""The keys that lead to it in the file, what is so, and what to do."""


class Filter:
    """Deletes always pass: whether the row that goes had passed is no longer known."""

    def __init__(
        self, text: str, schema: TableSchema, expressions: Expressions, *, ms_max: int = MS_MAX
    ) -> None:
        self.schema = schema
        self._condition = expressions.prepare(
            {"filter": text}, schema, what="filter", ms_max=ms_max
        )
        if not pa.types.is_boolean(self._condition.types["filter"]):
            raise ConfigError(
                "the filter is not a condition",
                hint="write a comparison, such as status <> 'draft'",
                table=str(schema.table),
                filter=text,
                type=str(self._condition.types["filter"]),
            )

    def apply(self, changes: TableChanges) -> TableChanges:
        return self.filter_changes(changes, deletes_all=False)

    def filter_changes(self, changes: TableChanges, *, deletes_all: bool) -> TableChanges:
        """With `deletes_all` every row that does not pass is deleted, not only changed ones:
        needed where a target may hold rows whose deletes nobody reads any more."""
        goes = is_operation(changes, Operation.DELETE)
        passes = pc.or_(answers_of(self._condition, changes, goes)[0].fill_null(False), goes)
        if pc.all(passes, min_count=0).as_py():
            return changes
        left = pc.invert(passes)
        if not deletes_all:
            had_row = is_operation(changes, Operation.UPDATE, Operation.REREAD)
            left = pc.and_(left, had_row)
        if not changes.schema.key or not pc.any(left).as_py():
            return changes.filter(passes)
        return _take_back(changes, passes, left)


def _take_back(
    changes: TableChanges, passes: pa.BooleanArray, left: pa.BooleanArray
) -> TableChanges:
    """Those that pass, and those that left as deletes, of which no more is told than of others:
    the key."""
    mask = pc.if_else(left, pa.scalar(None, pa.bool_()), passes)
    hidden = changes.rows.filter(mask, null_selection_behavior="emit_null")
    kept = pc.or_(passes, left)
    taken = replace(changes, rows=changes.keys).filter(kept)
    columns = [
        taken.rows.column(name) if name in changes.schema.key else hidden.column(name)
        for name in changes.schema.names
    ]
    return replace(
        taken,
        rows=pa.RecordBatch.from_arrays(columns, schema=changes.rows.schema),
        operations=pc.if_else(left.filter(kept), DELETE, taken.operations),
    )


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
                changes = step.filter_changes(changes, deletes_all=may_have_gaps)
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
    """The steps for the changes of one schema."""

    steps: tuple[TransformStep, ...]
    schema: TableSchema
    """After the steps."""
    target: TableSchema
    """After the routes; the same object where they change nothing."""


def mistakes_in(rules: Sequence[TransformRule], *, directory: Path) -> Iterator[Problem]:
    """Expressions that cannot be read, types that do not exist, and functions that cannot be
    imported, which are looked for in `directory` as well. Loads DuckDB where there are
    expressions, so this is for a process that runs no broker."""
    expressions = cache(Expressions)
    for at, rule in enumerate(rules):
        for keys, text in _expressions_of(rule):
            try:
                expressions().check(text)
            except ConfigError as error:
                yield ("transform", at, *keys), _describe(error), error.hint
        for name, text in rule.cast.items():
            try:
                parsed_type(text)
            except ConfigError as error:
                yield ("transform", at, "cast", name), error.problem, error.hint

        if rule.python:
            try:
                UserFunction(rule.python, directory=directory)
            except ConfigError as error:
                raised = error.facts.get("raised")
                told = f"{error.problem}: {raised}" if raised else error.problem
                yield ("transform", at, "python"), told, error.hint


def _expressions_of(rule: TransformRule) -> Iterator[tuple[tuple[str, ...], str]]:
    if rule.filter:
        yield ("filter",), rule.filter
    yield from ((("add", name), text) for name, text in rule.add.items())


def _describe(error: ConfigError) -> str:
    function = error.facts.get("function")
    return f"{error.problem}: {function}" if function else error.problem
