"""The interface between the sink and one kind of database."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray
from headwater.core_log.model.table_schema import Column, TableId
from headwater.sinks.sql.ownership import OwnershipMark

if TYPE_CHECKING:
    import sqlalchemy as sa


class DriverProblem(Enum):
    """The class of a driver's error."""

    AWAY = "the database does not answer"
    AGAIN = "the database chose another transaction; the same once more may succeed"
    TAKEN = "a row with that key is there already"
    VALUE = "a value does not fit its column"
    GONE = "a table or column is not there"
    REFUSED = "anything else: the statement can never succeed as it is"


class ColumnFit(NamedTuple):
    """A column's type in the database, and the values that it holds unchanged."""

    sql: str
    holds: pa.DataType


class RowMatch(NamedTuple):
    """A condition on a row of the table: its column equals a column of the given row."""

    column: str
    operator: str = "="


class ExistingTable(NamedTuple):
    """An existing table."""

    mark: OwnershipMark | None
    is_empty: bool


class Dialect(Protocol):
    """One kind of database. Tables have their database names; `rows` have its column names.

    State between calls belongs to one connection, until `forget`.
    """

    name: str
    name_bytes_max: int
    is_case_sensitive: bool
    """Returns whether two columns may differ only by the case of their letters."""
    has_transactional_ddl: bool
    keeps_marks: bool
    """Whether a table can store its mark; if not, every existing table counts as ours."""

    def quote(self, name: str) -> str: ...

    def prepare(self, connection: "sa.Connection") -> None:
        """Makes a new connection strict, exact and in UTC."""
        ...

    def begin(self, connection: "sa.Connection") -> None:
        """Begins a transaction that will write."""
        ...

    def forget(self) -> None:
        """Forgets state of a connection, or of a transaction that was rolled back."""
        ...

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit: ...

    def arrow_type(self, kind: object) -> pa.DataType | None:
        """Returns the type of values in an existing column, by its SQLAlchemy type; None if
        unknown."""
        ...

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None: ...

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        """Returns statements that create a table; only key columns are NOT NULL."""
        ...

    def claim(self, table: TableId, mark: OwnershipMark) -> list[str] | None:
        """Returns the statement that marks somebody else's table as ours; None if not possible."""
        ...

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        """Returns statements; None if the database cannot widen a column."""
        ...

    def write_as_text(
        self, table: TableId, column: str, *, held: pa.DataType, comes: pa.DataType
    ) -> list[str] | None:
        """Returns statements that turn a column, not of the key, into text.

        Each value becomes the text that values of the wider type `comes` will have. None if the
        database cannot do that.
        """
        ...

    def loosen(self, table: TableId, column: str, kind: str) -> list[str] | None: ...

    def rename_column(self, table: TableId, column: str, becomes: str) -> list[str] | None:
        """Returns the statement; None if this database's statement is unknown."""
        ...

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
        ...

    def rename(self, pairs: Sequence[tuple[TableId, TableId]]) -> list[str]:
        """Returns statements that rename all of them in order, as one step for readers."""
        ...

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None: ...

    def upsert(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        key: Sequence[str],
        is_new: BoolArray,
    ) -> None:
        """Inserts or updates rows with distinct keys.

        `is_new` marks rows that the source had just inserted: the table rarely has them already.
        """
        ...

    def update(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        match: Sequence[RowMatch],
        where: str | None = None,
        unset: str | None = None,
    ) -> None:
        """Sets the columns that are not matched in all table rows that match one of these rows.

        In these table rows the column `where` is true and the column `unset` is null. At least one
        of the three conditions is given.
        """
        ...

    def delete(
        self,
        connection: "sa.Connection",
        table: TableId,
        rows: pa.RecordBatch,
        *,
        match: Sequence[RowMatch],
        where: str | None = None,
    ) -> None:
        """Deletes all table rows that match one of these, whose columns are all matched."""
        ...

    def among(
        self,
        connection: "sa.Connection",
        table: TableId,
        keys: pa.RecordBatch,
        *,
        is_indexed: bool,
    ) -> str | None:
        """Returns a subquery for FROM of all rows with one of these keys, or None if the database
        cannot do that. It is valid until the next statement with rows. `is_indexed`: the table's
        primary key begins with these columns."""
        ...

    def unfit(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Returns rows that the database would store with changed values, with the reason."""
        ...

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        """Returns the class of an error, and a sentence without any value of a row."""
        ...


def qualify(dialect: Dialect, table: TableId) -> str:
    return ".".join(dialect.quote(part) for part in table if part)


def renamed_column(dialect: Dialect, table: TableId, column: str, becomes: str) -> list[str]:
    """Returns the statement of most databases."""
    names = f"{dialect.quote(column)} TO {dialect.quote(becomes)}"
    return [f"ALTER TABLE {qualify(dialect, table)} RENAME COLUMN {names}"]


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
        lines.append(f"PRIMARY KEY ({', '.join(dialect.quote(name) for name in key)})")
    return ", ".join(lines)
