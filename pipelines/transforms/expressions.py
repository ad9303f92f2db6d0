"""SQL expressions over the columns of a batch, answered by a DuckDB that can reach nothing else."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock, Thread
from typing import TYPE_CHECKING
from weakref import ref

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import ConfigError, DecodeError, TransformFailed
from headwater.core_log.foundation.speed import unfreeze_at_exit
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.schema_text import type_text
from headwater.pipelines.transforms.rows import at_table
from headwater.pipelines.transforms.syntax import Syntax, read_syntax, usable_functions

if TYPE_CHECKING:
    import duckdb


MEMORY_BYTES_MAX = 512 << 20
THREADS = 1
SETTINGS: dict[str, str | int | bool] = {
    "threads": THREADS,
    "temp_directory": "",
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_progress_bar": False,
    "TimeZone": "UTC",
    "lock_configuration": True,
}
"""In this order: after the last one nothing can be set any more."""
MS_MAX = 30_000
NO_COLUMN = "headwater"
PROBED_MAX = 20
"""Failing rows that are asked for their own reason; that many stop a table by default."""


class ExpressionFailed(Exception):
    """Rows on which an expression fails, with the kind of failure; never a value."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__()
        self.reasons = reasons


class Expressions:
    """One database in memory, for one thread at a time."""

    def __init__(self, *, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        import duckdb

        unfreeze_at_exit()
        self._database = duckdb.connect(":memory:")
        self._database.execute(f"SET memory_limit = '{memory_bytes_max}B'")
        for name, value in SETTINGS.items():
            self._database.execute(f"SET {name} = {value!r}")
        self._functions = usable_functions(self._database)
        self._prepared_count = 0

    def check(self, text: str) -> Syntax:
        """Raises ConfigError unless this is one expression that a row alone decides."""
        return read_syntax(self._database, text, self._functions)

    def prepare(
        self,
        texts: Mapping[str, str],
        schema: TableSchema,
        *,
        what: str = "expression",
        ms_max: int = MS_MAX,
    ) -> "PreparedQuery":
        """The expressions as they apply to rows of this schema, in this order; `what` is what they
        are called when they fail, `ms_max` what they may take for one batch."""
        self._prepared_count += 1
        view, used = f"rows {self._prepared_count}", self._used_columns(texts, schema)
        return PreparedQuery(self._database, view, texts, used, schema, what=what, ms_max=ms_max)

    def _used_columns(self, texts: Mapping[str, str], schema: TableSchema) -> list[str]:
        """Only columns that are used are handed over: it is quicker, and the others may be of types
        that DuckDB does not know."""
        used: dict[str, str] = {}
        for text in texts.values():
            try:
                syntax = self.check(text)
            except ConfigError as error:
                raise at_table(error, schema) from None
            for name in syntax.columns_of(schema):
                if used.setdefault(name.lower(), name) != name:
                    raise ConfigError(
                        "the expression uses columns whose names differ only in case, which SQL "
                        "cannot",
                        table=str(schema.table),
                        columns=sorted((used[name.lower()], name)),
                    )
        return list(used.values())


class ViewInput:
    """The input of a view of DuckDB: the batch of the moment."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class PreparedQuery:
    """Parsed and bound once; run on every batch of its schema."""

    def __init__(
        self,
        database: "duckdb.DuckDBPyConnection",
        view: str,
        texts: Mapping[str, str],
        used: Sequence[str],
        schema: TableSchema,
        *,
        what: str,
        ms_max: int,
    ) -> None:
        import duckdb

        self._database, self._view, self._used = database, view, list(used)
        self._failure, self._table = duckdb.Error, str(schema.table)
        self._interrupted = duckdb.InterruptException
        self._what, self._ms_max = what, ms_max
        self._time_limit = TimeLimit(ms_max, database.interrupt)
        self._texts = [f"({text}\n)" for text in texts.values()]
        self._nothing = self._columns(pa.RecordBatch.from_pylist([], schema=schema.arrow))
        self._feed = ViewInput(self._nothing)
        database.register(view, self._feed)
        try:
            self._answers = self._query(self._texts)
            # Running it on no rows finds everything that is wrong but single values.
            answered = self._answers.to_arrow_table().schema.types
        except self._failure as error:
            raise ConfigError(
                "the expression does not fit the table",
                table=self._table,
                expression=", ".join(texts.values()),
                said=str(error).splitlines()[0],
            ) from None
        self.types = {
            name: _column_type(kind, name, self._table)
            for name, kind in zip(texts, answered, strict=True)
        }

    def evaluate(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """A column per expression; raises Unanswered with every row that has no answer."""
        try:
            return self._ask(self._answers, rows)
        except self._failure:
            failing = self._failing_rows(rows)
        raise ExpressionFailed({row: self._reason(rows, row, at) for at, row in enumerate(failing)})

    def evaluate_or_null(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return self._ask(self._query([f"TRY({text})" for text in self._texts]), rows)

    def _query(self, answers: Sequence[str]) -> "duckdb.DuckDBPyRelation":
        columns = ", ".join(f"{answer} AS a{place}" for place, answer in enumerate(answers))
        return self._database.sql(f'SELECT {columns} FROM "{self._view}"')

    def _failing_rows(self, rows: pa.RecordBatch) -> list[int]:
        """TRY gives null where its expression fails; whether something is null never is null."""
        sound = " AND ".join(f"TRY({text} IS NULL) IS NOT NULL" for text in self._texts)
        try:
            answers = self._run(self._query([sound]), rows)
            failing: list[int] = pc.indices_nonzero(pc.invert(answers.column(0))).to_pylist()
        except self._failure as error:
            raise self._too_much(kind_of(error)) from None
        if not failing:
            raise self._too_much("memory")
        return failing

    def _too_much(self, kind: str) -> TransformFailed:
        return TransformFailed(
            "an expression fails, and no single row is the reason",
            table=self._table,
            rule=", ".join(self._texts),
            kind=kind,
        )

    def _reason(self, rows: pa.RecordBatch, row: int, place: int) -> str:
        if place < PROBED_MAX:
            try:
                self._run(self._answers, rows.slice(row, 1))
            except self._failure as error:
                return f"{self._what} fails: {kind_of(error)}"
        return f"{self._what} fails"

    def _ask(self, query: "duckdb.DuckDBPyRelation", rows: pa.RecordBatch) -> list[pa.Array]:
        answers = self._run(query, rows)
        assert answers.num_rows == rows.num_rows, "an expression has one answer per row"
        return [
            _plain(column, kind)
            for column, kind in zip(answers.columns, self.types.values(), strict=True)
        ]

    def _run(self, query: "duckdb.DuckDBPyRelation", rows: pa.RecordBatch) -> pa.Table:
        """DuckDB looks whether it is interrupted between rows, some thousands at a time."""
        self._feed.table = self._columns(rows)
        try:
            with self._time_limit.watch():
                return query.to_arrow_table()
        except self._interrupted:
            raise TransformFailed(
                "an expression takes longer than its limit",
                hint="make it simpler, or raise `time_max` of its rule",
                table=self._table,
                rule=", ".join(self._texts),
                rows=rows.num_rows,
                time_max=f"{self._ms_max}ms",
            ) from None
        finally:
            self._feed.table = self._nothing

    def _columns(self, rows: pa.RecordBatch) -> pa.Table:
        if not self._used:  # the answer depends on no column, but there is one per row
            return pa.table({NO_COLUMN: pa.nulls(rows.num_rows, pa.bool_())})
        return pa.table({name: rows.column(name) for name in self._used})


def kind_of(error: Exception) -> str:
    """`conversion error` for `ConversionException`: its message would show the value."""
    words = type(error).__name__.removesuffix("Exception").removesuffix("Error")
    return (
        "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in words)[1:]
        + " error"
    )


def _column_type(kind: pa.DataType, name: str, table: str) -> pa.DataType:
    """The type as our columns have it, whatever form DuckDB hands it over in."""
    found = _simple(kind)
    try:
        type_text(found)
    except DecodeError:
        raise ConfigError(
            "the expression has a type that no target supports",
            hint="cast it, such as (...)::VARCHAR",
            table=table,
            column=name,
            type=str(kind),
        ) from None
    return found


def _simple(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_simple(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _simple(field.type)) for field in kind])
    return kind


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    if column.type != kind:
        column = column.cast(kind)
    return (
        column.chunk(0)
        if column.num_chunks == 1
        else pa.concat_arrays(column.chunks or [pa.array([], kind)])
    )


LOOK_S = 1.0
"""How long a thread stays after the last work, at most."""


class TimeLimit:
    """For one piece of work at a time. A thread looks after all that comes while it is there, since
    starting one takes as long as many a piece of work."""

    def __init__(self, ms_max: int, interrupt: Callable[[], object]) -> None:
        self._s_max, self._interrupt = ms_max / 1_000, interrupt
        self._lock = Lock()
        self._due: float | None = None
        """The deadline of the current expression."""
        self._is_watched = False

    @contextmanager
    def watch(self) -> Iterator[None]:
        with self._lock:
            self._due = time.monotonic() + self._s_max
            is_watched, self._is_watched = self._is_watched, True
        if not is_watched:
            Thread(target=_watch, args=[ref(self)], name="time limit", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:  # and so it is not interrupted any more
                self._due = None

    def left_s(self) -> float | None:
        """How long nothing needs to be looked at; None when there is nothing left to look after."""
        with self._lock:
            if self._due is None:
                self._is_watched = False
                return None
            left_s = self._due - time.monotonic()
            if left_s <= 0:
                self._interrupt()
                left_s = self._s_max
            return min(left_s, LOOK_S)


def _watch(limit: "ref[TimeLimit]") -> None:
    """Nothing falls due in the sleep: what begins meanwhile may last longer than that. Asleep it
    holds nothing, or DuckDB would complain of what is left when the program ends meanwhile."""
    while (left_s := _left_s(limit())) is not None:
        time.sleep(left_s)


def _left_s(limit: TimeLimit | None) -> float | None:
    return None if limit is None else limit.left_s()
