"""SQL expressions over the columns of a batch, answered by a DuckDB that can reach nothing else."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from core_log.errors import ConfigError, DecodeError
from core_log.rows.column_types import type_text
from core_log.table_schema import TableSchema
from pipelines.transforms.syntax import Syntax, read_syntax

if TYPE_CHECKING:
    import duckdb

MEMORY_BYTES_MAX = 512 << 20
THREADS = 1
ROWS = "rows"
"""The one table that there is."""
ROW_NUMBER = "headwater row"
PROBED_MAX = 20
"""Failing rows that are asked for their own reason; that many stop a table by default."""

SETTINGS: dict[str, str | int | bool] = {
    "threads": THREADS,
    "memory_limit": f"{MEMORY_BYTES_MAX}B",
    "temp_directory": "",
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_progress_bar": False,
    "TimeZone": "UTC",
}


class Unanswered(Exception):
    """Rows on which an expression fails, with the kind of failure; never a value."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__()
        self.reasons = reasons


class Expressions:
    """One database in memory, for one thread at a time."""

    def __init__(self) -> None:
        import duckdb

        self.failure = duckdb.Error
        self._database = duckdb.connect(":memory:")
        # Offered as products of other databases write it.
        self._database.execute("CREATE MACRO date(value) AS CAST(value AS DATE)")
        for name, value in SETTINGS.items():
            self._database.execute(f"SET {name} = {value!r}")
        self._allowed = _functions(self._database)
        self._database.execute("SET lock_configuration = true")

    def check(self, text: str) -> Syntax:
        """Raises ConfigError unless this is one expression that always gives the same answer."""
        return read_syntax(self._database, text, self._allowed)

    def prepare(self, texts: Mapping[str, str], schema: TableSchema) -> "Prepared":
        """The expressions as they apply to rows of this schema, in this order."""
        return Prepared(self._database, texts, self._used(texts, schema), schema)

    def _used(self, texts: Mapping[str, str], schema: TableSchema) -> list[str]:
        """Only columns that are used are handed over: it is quicker, and the others may be of types
        that DuckDB does not know."""
        used: dict[str, str] = {}
        for text in texts.values():
            for name in self.check(text).columns_of(schema, text):
                if used.setdefault(name.lower(), name) != name:
                    raise ConfigError(
                        "the expression uses columns that differ in case only, which SQL cannot",
                        table=str(schema.table),
                        columns=sorted((used[name.lower()], name)),
                    )
        return list(used.values())


class Prepared:
    """Checked, with the types of the answers known; run on every batch of its schema."""

    def __init__(
        self,
        database: "duckdb.DuckDBPyConnection",
        texts: Mapping[str, str],
        used: Sequence[str],
        schema: TableSchema,
    ) -> None:
        import duckdb

        self._database, self._used = database, list(used)
        self._failure = duckdb.Error
        answers = [f"({text}\n)" for text in texts.values()]
        self._query = f'SELECT {", ".join(answers)} FROM "{ROWS}"'
        lenient = [f"TRY({answer})" for answer in answers]
        self._lenient = f'SELECT {", ".join(lenient)} FROM "{ROWS}"'
        # TRY gives null where its expression fails; whether something is null never is null.
        sound = [f"TRY({answer} IS NULL) IS NOT NULL" for answer in answers]
        self._sound = f'SELECT {" AND ".join(sound)} FROM "{ROWS}"'
        self.types = dict(zip(texts, self._settle(texts, schema), strict=True))

    def evaluate(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """A column per expression; raises Unanswered with every row that has no answer."""
        try:
            return self._ask(self._query, rows)
        except self._failure:
            [is_sound] = self._ask(self._sound, rows, types=[pa.bool_()])
        failing = pc.indices_nonzero(pc.invert(is_sound)).to_pylist()
        assert failing, "an expression that fails on rows together fails on one of them alone"
        raise Unanswered({row: self._reason(rows, row, n) for n, row in enumerate(failing)})

    def evaluate_or_null(self, rows: pa.RecordBatch) -> list[pa.Array]:
        return self._ask(self._lenient, rows)

    def _reason(self, rows: pa.RecordBatch, row: int, place: int) -> str:
        if place < PROBED_MAX:
            try:
                self._ask(self._query, rows.slice(row, 1))
            except self._failure as error:
                return f"the expression fails on this row: {kind_of(error)}"
        return "the expression fails on this row"

    def _ask(
        self, query: str, rows: pa.RecordBatch, *, types: Sequence[pa.DataType] | None = None
    ) -> list[pa.Array]:
        types = types or list(self.types.values())
        self._database.register(ROWS, self._table(rows))
        answers = self._database.execute(query).to_arrow_table()
        return [
            _plain(column, kind) for column, kind in zip(answers.columns, types, strict=True)
        ]

    def _table(self, rows: pa.RecordBatch) -> pa.Table:
        columns = {name: rows.column(name) for name in self._used}
        if not columns:  # the answer depends on no column, but there is one per row
            columns = {ROW_NUMBER: pa.nulls(rows.num_rows, pa.bool_())}
        return pa.table(columns)

    def _settle(self, texts: Mapping[str, str], schema: TableSchema) -> list[pa.DataType]:
        """Tries the query on no rows: that finds everything that is wrong but single values."""
        arrow = schema.arrow
        empty = {name: pa.array([], arrow.field(name).type) for name in self._used}
        self._database.register(ROWS, pa.table(empty or {ROW_NUMBER: pa.array([], pa.bool_())}))
        try:
            answered = self._database.execute(self._query).to_arrow_table().schema
            plan = self._database.execute(f"EXPLAIN (FORMAT json) {self._query}").fetchall()
        except self._failure as error:
            raise ConfigError(
                f"the expression does not fit the table: {first_line(error)}",
                table=str(schema.table),
                expression=list(texts.values()),
            ) from None
        _check_plan(plan)
        return [
            _settled(field.type, name, schema)
            for name, field in zip(texts, answered, strict=True)
        ]


def kind_of(error: Exception) -> str:
    """`ConversionException` is conversion error: without the message, which holds the value."""
    return type(error).__name__


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
