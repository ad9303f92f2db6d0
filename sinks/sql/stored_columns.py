"""The ids of the columns of a target's tables, in the table `_headwater_columns` beside them."""

from hashlib import sha256
from typing import TYPE_CHECKING

import orjson
import sqlalchemy as sa

from headwater.core_log.model.table_schema import TableId
from headwater.sinks.held_columns import HeldColumns

if TYPE_CHECKING:
    from sqlalchemy import Connection

NAME_LETTERS, DIGEST_LETTERS = 64, 64

TABLE = sa.Table(
    "_headwater_columns",
    sa.MetaData(),
    sa.Column("pipeline", sa.String(NAME_LETTERS), primary_key=True),
    sa.Column("sink", sa.String(NAME_LETTERS), primary_key=True),
    sa.Column("target", sa.String(DIGEST_LETTERS), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("columns", sa.Text().with_variant(sa.Text(1 << 24), "mysql", "mariadb")),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
    mariadb_charset="utf8mb4",
    mariadb_collate="utf8mb4_bin",
)
"""`target` is a digest of the table's name; a row counts for the table of its generation."""


class StoredColumns:
    """Of all tables of one sink of one pipeline. Transactions are the caller's."""

    def __init__(self, pipeline: str, sink: str) -> None:
        self._pipeline, self._sink = pipeline, sink
        self._is_there = False

    def is_there(self, connection: "Connection") -> bool:
        self._is_there = self._is_there or sa.inspect(connection).has_table(TABLE.name)
        return self._is_there

    def forget(self) -> None:
        self._is_there = False

    def creation(self, connection: "Connection") -> str:
        """The statement that makes the table."""
        return str(sa.schema.CreateTable(TABLE).compile(dialect=connection.dialect)).strip()

    def read(self, connection: "Connection", live: TableId, generation: int) -> HeldColumns:
        if not self.is_there(connection):
            return HeldColumns()
        question = sa.select(TABLE.c.columns).where(*self._of(live, generation))
        return HeldColumns.parse(connection.execute(question).scalar())

    def write(
        self, connection: "Connection", live: TableId, generation: int, held: HeldColumns
    ) -> None:
        connection.execute(TABLE.delete().where(*self._of(live, generation)))
        values = {
            "pipeline": self._pipeline,
            "sink": self._sink,
            "target": _digest(live),
            "generation": generation,
            "columns": held.text(),
        }
        connection.execute(TABLE.insert(), [values])

    def delete(self, connection: "Connection", live: TableId, *, before: int | None = None) -> None:
        """Of all generations of a table, or those before one."""
        if not self.is_there(connection):
            return
        where = [self._ours, TABLE.c.target == _digest(live)]
        if before is not None:
            where.append(TABLE.c.generation < before)
        connection.execute(TABLE.delete().where(*where))

    def drop_if_empty(self, connection: "Connection") -> bool:
        """Whether the table was dropped, as no other sink keeps anything in it."""
        if not self.is_there(connection):
            return False
        connection.execute(TABLE.delete().where(self._ours))
        if connection.execute(TABLE.select().limit(1)).first() is not None:
            return False
        TABLE.drop(connection)
        self.forget()
        return True

    @property
    def _ours(self) -> sa.ColumnElement[bool]:
        return sa.and_(TABLE.c.pipeline == self._pipeline, TABLE.c.sink == self._sink)

    def _of(self, live: TableId, generation: int) -> list[sa.ColumnElement[bool]]:
        return [
            self._ours,
            TABLE.c.target == _digest(live),
            TABLE.c.generation == generation,
        ]


def _digest(table: TableId) -> str:
    return sha256(orjson.dumps([*table])).hexdigest()
