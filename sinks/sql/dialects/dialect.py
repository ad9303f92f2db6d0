"""The interface between the sink and one kind of database."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.model.table_schema import Column, TableId

if TYPE_CHECKING:
    import sqlalchemy as sa

MARK = re.compile(
    r"headwater:(?P<pipeline>[\w.-]+):(?P<sink>[\w.-]+):(?P<generation>\d+):(?P<origin>[0-9a-f]+)"
    r"(:(?P<recipe>[0-9a-f]+))?"
)


class DriverProblem(Enum):
    AWAY = "the database does not answer"
    AGAIN = "the database chose another transaction; the same once more may succeed"
    TAKEN = "a row with this key already exists"
    VALUE = "a value does not fit its column"
    GONE = "a table or column does not exist"
    REFUSED = "anything else: the statement can never succeed as it is"


class OwnershipMark(NamedTuple):
    """The owner mark in a table's comment.

    It moves with the table when it is renamed, so one rename swaps rows and offsets.
    """

    pipeline: str
    sink: str
    generation: int
    """Incremented by every rebuild; stored offsets name it."""
    origin: str
    """Identifies the source table without its name."""
    recipe: str = ""
    """The recipe of a copy, if the table was made as one."""

    def __str__(self) -> str:
        ending = f":{self.recipe}" if self.recipe else ""
        return f"headwater:{self.pipeline}:{self.sink}:{self.generation}:{self.origin}{ending}"


def read_mark(text: str | None) -> OwnershipMark | None:
    """Returns the mark in a table's comment; None if there is none."""
    found = MARK.search(text or "")
    if found is None:
        return None
    generation, recipe = int(found["generation"]), found["recipe"] or ""
    return OwnershipMark(found["pipeline"], found["sink"], generation, found["origin"], recipe)


class ColumnFit(NamedTuple):
    """A column's type in the database, and the values that it holds unchanged."""

    sql: str
    holds: pa.DataType


class RowMatch(NamedTuple):
    """A condition on a row of the table: its column equals a column of the given row."""

    column: str
    operator: str = "="


class RowCondition(NamedTuple):
    """Table rows that match one of the given rows, with a true column `where` and a null column
    `unset`. At least one of the three conditions is given."""

    match: Sequence[RowMatch]
    where: str | None = None
    unset: str | None = None

    def find_unmatched(self, names: Sequence[str]) -> list[str]:
        matched = {each.column for each in self.match}
        return [name for name in names if name not in matched]


class UpsertKey(NamedTuple):
    """The key columns of rows, and which rows the source had just inserted: the table rarely has
    these already."""

    columns: Sequence[str]
    is_new: BoolArray


class ExistingTable(NamedTuple):
    mark: OwnershipMark | None
    is_empty: bool


class Dialect(Protocol):
    """One kind of database. Tables have their database names; `rows` have its column names.

    State between calls belongs to one connection, until `forget`. A method with a body is right for
    most databases.
    """

    name: str
    name_bytes_max: int
    is_case_sensitive: bool
    """Returns whether two columns may differ only by the case of their letters."""
    has_transactional_ddl: bool
    keeps_marks: bool
    """Whether a table can store its mark; if not, every existing table counts as ours."""
    join_sql: str = ""
    """A join with given rows, in the given order if that matters; empty if there is none."""
    url: "sa.URL | None" = None
    """The address of the database, for errors."""
    idle_ms_max: int = 0
    """After so long without a transaction a connection is made anew; 0 is never."""

    def quote(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def prepare(self, connection: "sa.Connection") -> None:
        """Makes a new connection strict, exact and in UTC."""
        ...

    def begin(self, connection: "sa.Connection") -> None:
        """Begins a transaction that will write."""
        return

    def forget(self) -> None:
        """Forgets state of a connection, or of a transaction that was rolled back."""
        return

    def interrupt(self, driver: Any, engine: "sa.Engine") -> None:
        """Ends the statement that another thread waits for. `driver` is its connection."""
        return

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit: ...

    def arrow_type(self, kind: object) -> pa.DataType | None:
        """Returns the type of values in an existing column, by its SQLAlchemy type; None if
        unknown."""
        ...

    def find_strict_texts(
        self, connection: "sa.Connection", table: TableId, kinds: Mapping[str, object]
    ) -> dict[str, str]:
        """Returns existing columns that take only some texts, with their types as `fit` names them.
        `kinds` are SQLAlchemy's types of all columns."""
        return {}

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None: ...

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        """Returns statements that create a table; only key columns are NOT NULL."""
        ...

    def claim(self, table: TableId, mark: OwnershipMark) -> list[str] | None:
        """Returns the statement that marks somebody else's table as ours; None if not possible."""
        return None

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        """Returns statements; None if the database cannot widen a column."""
        return None

    def write_as_text(
        self, table: TableId, column: str, *, stored: pa.DataType, comes: pa.DataType
    ) -> list[str] | None:
        """Returns statements that turn a column, not of the key, into text.

        Each value becomes the text that values of the wider type `comes` will have. None if the
        database cannot do that.
        """
        return None

    def loosen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        return None

    def rename_column(self, table: TableId, column: str, becomes: str) -> list[str] | None:
        """Returns the statement; None if this database's statement is unknown."""
        names = f"{self.quote(column)} TO {self.quote(becomes)}"
        return [f"ALTER TABLE {qualify(self, table)} RENAME COLUMN {names}"]

    def rekey(
        self,
        connection: "sa.Connection",
        table: TableId,
        key: Mapping[str, str],
        *,
        mark: OwnershipMark,
    ) -> list[str] | None:
        """Returns statements that make these columns, with their types, the key of existing rows;
        None if the database cannot do that."""
        return None

    def rename(self, pairs: Sequence[tuple[TableId, TableId]]) -> list[str]:
        """Returns statements that rename all of them in order, as one step for readers."""
        return [
            f"ALTER TABLE {qualify(self, old)} RENAME TO {self.quote(new.name)}"
            for old, new in pairs
        ]

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None: ...

    def upsert(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, by: UpsertKey
    ) -> None:
        """Inserts or updates rows with distinct keys."""
        ...

    def update(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        """Sets the columns that are not matched in all those table rows."""
        ...

    def delete(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        """Deletes all those table rows; all columns of `rows` are matched."""
        ...

    def among(
        self, connection: "sa.Connection", table: TableId, keys: pa.RecordBatch, *, is_indexed: bool
    ) -> str | None:
        """Returns a subquery for FROM of all rows with one of these keys, or None if the database
        cannot do that. It is valid until the next statement with rows. `is_indexed`: the table's
        primary key begins with these columns."""
        if not self.join_sql:
            return None
        first = f"{qualify(self, table)} AS t"
        second = f"{self.stage(connection, table, keys, is_indexed=True)} AS s"
        if is_indexed:
            first, second = second, first
        matching = conditions(self, same_values(keys.schema.names))
        return f"(SELECT t.* FROM {first} {self.join_sql} {second} ON {matching})"

    def stage(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        is_indexed: bool = False,
    ) -> str:
        """Returns the name of a temporary table of the rows, with the real table's columns."""
        raise AssertionError("a database without joins stages no rows")

    def find_rejected(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Returns rows that the database would store with changed values, with the reason."""
        return {}

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        """Returns the class of an error, and a sentence without any value of a row."""
        ...


class StagedDialect(Dialect):
    """Writes given rows into a temporary table `s`, and joins it with the table `t`."""

    sets: str
    """SQL of one assignment, `{0}` being the column."""
    update_sql: str
    delete_sql: str

    def update(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        sets = fill_in(self, which.find_unmatched(rows.schema.names), self.sets)
        self._run_staged(connection, table, rows, which, self.update_sql, sets)

    def delete(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        self._run_staged(connection, table, rows, which, self.delete_sql)

    def _run_staged(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        which: RowCondition,
        statement: str,
        sets: str = "",
    ) -> None:
        stage = self.stage(connection, table, rows)
        on = conditions(self, which)
        run(connection, statement.format(t=qualify(self, table), s=stage, on=on, sets=sets))


def qualify(dialect: Dialect, table: TableId) -> str:
    return ".".join(dialect.quote(part) for part in table if part)


def same_values(names: Iterable[str], *, unset: str | None = None) -> RowCondition:
    return RowCondition([RowMatch(name) for name in names], unset=unset)


def name_list(dialect: Dialect, names: Iterable[str]) -> str:
    return ", ".join(map(dialect.quote, names))


def fill_in(dialect: Dialect, names: Iterable[str], pattern: str) -> str:
    """Returns the pattern, such as `{0} = s.{0}`, with each of the names."""
    return ", ".join(pattern.format(dialect.quote(name)) for name in names)


def conditions(
    dialect: Dialect, which: RowCondition, *, column: str = "t.{}", given: str = "s.{}"
) -> str:
    """Returns the condition for a table `t` joined with the given rows `s`, or for other forms."""
    quote = dialect.quote
    terms = [
        f"{column.format(quote(name))} {operator} {given.format(quote(name))}"
        for name, operator in which.match
    ]
    terms += [column.format(quote(which.where))] if which.where else []
    terms += [f"{column.format(quote(which.unset))} IS NULL"] if which.unset else []
    return " AND ".join(terms)


def on_conflict(dialect: Dialect, names: Iterable[str], key: Sequence[str]) -> str:
    """Returns the end of an INSERT of rows that the table may have already."""
    sets = fill_in(dialect, (name for name in names if name not in key), "{0} = excluded.{0}")
    doing = f"UPDATE SET {sets}" if sets else "NOTHING"
    return f" ON CONFLICT ({name_list(dialect, key)}) DO {doing}"


def existing_table(
    dialect: Dialect, connection: "sa.Connection", table: TableId, comment: str | None
) -> ExistingTable:
    mark = read_mark(comment)
    if mark is not None:
        return ExistingTable(mark, is_empty=False)
    return ExistingTable(None, is_empty=is_empty(dialect, connection, table))


def is_empty(dialect: Dialect, connection: "sa.Connection", table: TableId) -> bool:
    cursor = connection.connection.cursor()
    cursor.execute(f"SELECT EXISTS (SELECT 1 FROM {qualify(dialect, table)})")
    (is_filled,) = cursor.fetchone() or (True,)
    return not is_filled


def first_type(
    kind: object, types_of: Iterable[tuple[type | tuple[type, ...], pa.DataType]]
) -> pa.DataType | None:
    """Returns the type beside the first of SQLAlchemy's types that it is an instance of."""
    return next((found for types, found in types_of if isinstance(kind, types)), None)


def run(connection: "sa.Connection", statement: str) -> None:
    """Runs a statement as it is: percent signs and colons have no special meaning."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def column_list(dialect: Dialect, columns: Mapping[str, str], key: Sequence[str]) -> str:
    """Returns the text between the parentheses of CREATE TABLE."""
    lines = [
        f"{dialect.quote(name)} {kind}{' NOT NULL' if name in key else ''}"
        for name, kind in columns.items()
    ]
    if key:
        lines.append(f"PRIMARY KEY ({name_list(dialect, key)})")
    return ", ".join(lines)
