"""The seam between the sink and one kind of database."""

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
    """What an error of a driver means to us."""

    AWAY = "the database does not answer"
    AGAIN = "the database chose another transaction; the same once more may succeed"
    TAKEN = "a row with that key is there already"
    VALUE = "a value does not fit its column"
    GONE = "a table or column is not there"
    REFUSED = "anything else: the statement can never succeed as it is"


class ColumnFit(NamedTuple):
    """The type of a column in the database, and the values it holds unchanged."""

    sql: str
    holds: pa.DataType


class RowMatch(NamedTuple):
    """A condition on a row of the table: its column beside the same column of the given row."""

    column: str
    operator: str = "="


class ExistingTable(NamedTuple):
    """A table that is there."""

    mark: OwnershipMark | None
    is_empty: bool


class Dialect(Protocol):
    """One kind of database. Tables are named as they are in it; `rows` have its column names.

    Whatever it keeps between calls belongs to one connection, until `forget`.
    """

    name: str
    name_bytes_max: int
    is_case_sensitive: bool
    """Whether two columns may differ in nothing but the case of their letters."""
    has_transactional_ddl: bool
    keeps_marks: bool
    """Whether a table can carry its mark; where not, every table that is there counts as ours."""

    def quote(self, name: str) -> str: ...

    def prepare(self, connection: "sa.Connection") -> None:
        """Makes a new connection strict, exact and in UTC."""
        ...

    def begin(self, connection: "sa.Connection") -> None:
        """A transaction begins that will write."""
        ...

    def forget(self) -> None:
        """The connection, or the transaction that made something in it, is gone."""
        ...

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit: ...

    def arrow_type(self, kind: object) -> pa.DataType | None:
        """What a column found in the database holds, by SQLAlchemy's type of it; None when that
        cannot be said."""
        ...

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None: ...

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        """Statements that make a table; every column but the key's may be null."""
        ...

    def claim(self, table: TableId, mark: OwnershipMark) -> list[str] | None:
        """Puts the mark on a table that somebody else made; None where that cannot be done."""
        ...

    def widen(self, table: TableId, column: str, kind: str) -> list[str] | None:
        """None where the database cannot do that."""
        ...

    def write_as_text(
        self, table: TableId, column: str, *, held: pa.DataType, comes: pa.DataType
    ) -> list[str] | None:
        """Statements that make a text of each value in a column outside of the key, as values of
        the wider type `comes` are written from now on; None where the database cannot do that."""
        ...

    def loosen(self, table: TableId, column: str, kind: str) -> list[str] | None: ...

    def rename_column(self, table: TableId, column: str, becomes: str) -> list[str] | None:
        """None where it is not known how this database does it."""
        ...

    def rekey(
        self,
        connection: "sa.Connection",
        table: TableId,
        key: Mapping[str, str],
        *,
        mark: OwnershipMark,
    ) -> list[str] | None:
        """Statements that make these columns, with their types, the key of the rows that are
        there; None where the database cannot do that."""
        ...

    def rename(self, pairs: Sequence[tuple[TableId, TableId]]) -> list[str]:
        """All of them, in that order, in what its readers see as one step."""
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
        """No two of the rows have the same key. `is_new` says of which of them the source had
        none before: the table nearly never has them, but it may."""
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
        """Sets the columns that are not matched in all rows of the table that match one of these,
        in which the column `where` is true and the column `unset` null. Of these three conditions
        there is one at least."""
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
        """Deletes all rows of the table that match one of these, whose columns are all matched."""
        ...

    def unfit(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Rows that the database would take without keeping their values, with the reason."""
        ...

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        """What it means, and a sentence in which no value of a row stands."""
        ...


def qualify(dialect: Dialect, table: TableId) -> str:
    return ".".join(dialect.quote(part) for part in table if part)


def renamed_column(dialect: Dialect, table: TableId, column: str, becomes: str) -> list[str]:
    """As most databases do it."""
    names = f"{dialect.quote(column)} TO {dialect.quote(becomes)}"
    return [f"ALTER TABLE {qualify(dialect, table)} RENAME COLUMN {names}"]


def run(connection: "sa.Connection", statement: str) -> None:
    """A statement as it is: no percent sign or colon in it means anything but itself."""
    cursor = connection.connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def column_list(dialect: Dialect, columns: Mapping[str, str], key: Sequence[str]) -> str:
    """What stands between the parentheses of CREATE TABLE."""
    lines = [
        f"{dialect.quote(name)} {kind}{' NOT NULL' if name in key else ''}"
        for name, kind in columns.items()
    ]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(dialect.quote(name) for name in key)})")
    return ", ".join(lines)
