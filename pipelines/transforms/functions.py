"""`python: module:function`: rows through a function of the user's own project."""

import ast
import importlib
import inspect
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError, DecodeError, TransformFailed
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableSchema
from headwater.core_log.rows.rejects import failing_rows
from headwater.core_log.rows.schema_text import type_text
from headwater.pipelines.transforms.rows import is_operation, rejection, with_columns


class UserFunction:
    """A function and what it works on: an Arrow table, or rows where its parameter says so."""

    def __init__(self, name: str, *, directory: Path | None) -> None:
        self.name = name
        self._call = _find(name, directory)
        self._wants_rows = _wants_rows(self._call)

    def apply(self, rows: pa.Table, *, table: str) -> pa.Table:
        """As many rows in the same order; an exception of the function is a `FunctionRaised`."""
        given = rows.to_pylist() if self._wants_rows else rows
        try:
            result = self._call(given)
        except (Exception, SystemExit) as error:
            raise FunctionRaised(type(error).__name__) from None
        if self._wants_rows:
            result = self._as_table(result, rows.schema, table)
        if not isinstance(result, pa.Table):
            raise TransformFailed(
                "the python transform does not return the form of its input: a table, or a list "
                "of rows",
                table=table,
                function=self.name,
                returned=type(result).__name__,
            )
        if result.num_rows != rows.num_rows:
            raise TransformFailed(
                "the python transform returns another number of rows",
                hint="exclude rows by a filter in a later rule",
                table=table,
                function=self.name,
            )
        return result

    def _as_table(self, result: Any, schema: pa.Schema, table: str) -> Any:
        """Rows say no types, so they keep those that they came with."""
        if not isinstance(result, list):
            return result
        if strange := {str(key) for row in result for key in row} - set(schema.names):
            raise TransformFailed(
                "the python transform of rows makes new columns",
                hint="add the column in a rule before it, such as add: {label: NULL::VARCHAR}",
                table=table,
                function=self.name,
                column=min(strange),
            )
        try:
            return pa.Table.from_pylist(result, schema=schema)
        except (pa.ArrowException, TypeError, ValueError, AttributeError):
            raise FunctionRaised("a value of another type than its column") from None


class FunctionRaised(Exception):
    """The user's function raised, or gave what no column takes; names the kind, never a value."""


class PythonStep:
    """Deletes do not go through the function, since no more than their key is known: of columns
    that it makes they have nulls."""

    def __init__(self, function: UserFunction, schema: TableSchema) -> None:
        self._function, self._given = function, schema
        # The result for an empty table tells which columns the function makes.
        try:
            made = function.apply(schema.arrow.empty_table(), table=str(schema.table)).schema
        except FunctionRaised as raised:
            raise TransformFailed(
                "the python transform fails on a table without rows",
                hint="the function is called with an empty table first, which tells its columns",
                table=str(schema.table),
                function=function.name,
                raised=str(raised),
            ) from None
        self.schema = self._name(made)

    def apply(self, changes: TableChanges) -> TableChanges:
        goes = is_operation(changes, Operation.DELETE)
        if not pc.any(goes).as_py():
            return self._replace(changes)
        stay, gone = pc.indices_nonzero(pc.invert(goes)), pc.indices_nonzero(goes)
        made = self._replace(changes.take(stay)).rows
        kept = changes.rows.take(gone)
        order = pc.sort_indices(pa.concat_arrays([stay, gone]))
        arrow = self.schema.arrow
        columns = [
            pa.concat_arrays([made.column(each.name), _column_or_null(kept, each)]).take(order)
            for each in arrow
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=arrow)
        return replace(changes, schema=self.schema, rows=rows, before=None)

    def _replace(self, changes: TableChanges) -> TableChanges:
        table, name = pa.Table.from_batches([changes.rows]), str(changes.schema.table)
        try:
            made = self._check(table, self._function.apply(table, table=name))
        except FunctionRaised:
            failed = failing_rows(
                table.num_rows,
                lambda at, end: self._function.apply(table.slice(at, end - at), table=name),
                FunctionRaised,
            )
            if not failed:
                raise TransformFailed(
                    "the python transform fails on rows together and on none of them alone",
                    table=str(self.schema.table),
                    function=self._function.name,
                ) from None
            reasons = {row: f"{self._function.name}: {error}" for row, error in failed.items()}
            raise rejection("the python transform raises an error", changes, reasons) from None
        columns = {name: _one(made.column(name)) for name in self.schema.names}
        return with_columns(changes, self.schema, columns)

    def _check(self, given: pa.Table, made: pa.Table) -> pa.Table:
        for name in self.schema.key:
            if name not in made.column_names or not made.column(name).equals(given.column(name)):
                raise TransformFailed(
                    "the python transform changes the key",
                    table=str(self.schema.table),
                    function=self._function.name,
                    column=name,
                )
        try:
            return made.select(list(self.schema.names)).cast(self.schema.arrow)
        except (KeyError, pa.ArrowException):
            raise TransformFailed(
                "the python transform makes other columns than for a table without rows",
                table=str(self.schema.table),
                function=self._function.name,
            ) from None

    def _name(self, made: pa.Schema) -> TableSchema:
        known = {column.name: column for column in self._given.columns}
        columns = []
        for each in made:
            try:
                type_text(each.type)
            except DecodeError:
                raise TransformFailed(
                    "the python transform makes a column of a type that no target supports",
                    table=str(self._given.table),
                    function=self._function.name,
                    column=each.name,
                    type=str(each.type),
                ) from None
            old = known.get(each.name)
            same = old is not None and old.type == each.type
            columns.append(old if same and old else Column(each.name, each.type))
        if missing := set(self._given.key) - set(made.names):
            raise TransformFailed(
                "the python transform changes the key",
                table=str(self._given.table),
                function=self._function.name,
                column=min(missing),
            )
        return replace(self._given, columns=tuple(columns))


def _column_or_null(kept: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name in kept.schema.names and kept.schema.field(field.name).type == field.type:
        return kept.column(field.name)
    return pa.nulls(kept.num_rows, field.type)


def _one(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _find(name: str, directory: Path | None) -> Callable[[Any], Any]:
    module_name, _, attribute = name.partition(":")
    if directory is not None and str(directory) not in sys.path:
        sys.path.append(str(directory))  # last, so that a project hides nothing of ours
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:
        raise ConfigError(
            "the python transform cannot be imported",
            hint="put it beside the pipeline file or on PYTHONPATH",
            function=name,
            raised=f"{type(error).__name__}: {error}",
        ) from None
    if not callable(found):
        raise ConfigError("the python transform is not a function", function=name)
    call: Callable[[Any], Any] = found
    return call


def _wants_rows(call: Callable[[Any], Any]) -> bool:
    """`def clean(rows)` and `def clean(orders: list[dict])` get rows; others get a table."""
    parameters = list(inspect.signature(call).parameters.values())
    if not parameters:
        raise ConfigError(
            "the python transform does not take exactly one argument", function=call.__qualname__
        )
    try:
        kind = get_type_hints(call).get(parameters[0].name)
    except Exception:  # an annotation that cannot be resolved says nothing
        kind = None
    return (
        parameters[0].name == "rows" if kind is None else get_origin(kind) is list or kind is list
    )


@dataclass(frozen=True, slots=True)
class ShippedModules:
    """Python files by their paths from the directory that they were beside the file in."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    def put_down(self) -> Path:
        """A directory of this machine that has them, made by whoever comes first."""
        digest = sha256(repr(sorted(self.files.items())).encode()).hexdigest()[:32]
        place = Path(tempfile.gettempdir()) / f"headwater-functions-{os.getuid()}-{digest}"
        if not place.is_dir():
            fresh = Path(tempfile.mkdtemp(prefix=f"{place.name}.", dir=place.parent))
            for name, content in self.files.items():
                path = fresh / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            try:
                fresh.rename(place)
            except OSError:  # another process was faster
                shutil.rmtree(fresh)
        if place.lstat().st_uid != os.getuid():  # its name can be guessed, and it is executed
            raise ConfigError(
                "the directory of the shipped functions belongs to another user", path=str(place)
            )
        return place


@cache
def ship_modules(modules: Sequence[str], directory: Path) -> ShippedModules:
    """These modules, and what they import of what lies beside them, as they are when this is first
    asked: a process does not read them again either."""
    files: dict[str, bytes] = {}
    waiting = [name.partition(".")[0] for name in modules]
    while waiting:
        for path in _files_of(waiting.pop(), directory):
            name = path.relative_to(directory).as_posix()
            if name not in files:
                files[name] = path.read_bytes()
                waiting += _imported_by(files[name])
    return ShippedModules(files)


def _files_of(module: str, directory: Path) -> list[Path]:
    alone = directory / f"{module}.py"
    package = directory / module
    if (package / "__init__.py").is_file():
        return sorted(package.rglob("*.py"))
    return [alone] if alone.is_file() else []


def _imported_by(content: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            yield from (each.name.partition(".")[0] for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
