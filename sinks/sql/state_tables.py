"""The state of a sink in its target: the tables `_headwater_offsets` and `_headwater_columns`."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import sqlalchemy as sa

from headwater.core_log.foundation.errors import Fenced
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.sink import AppliedOffset, AppliedOffsets

if TYPE_CHECKING:
    from sqlalchemy import Connection


NAME_LENGTH, TOPIC_LENGTH, ID_LENGTH, DIGEST_LENGTH = 64, 249, 64, 64
IN_ONE_QUESTION = 500


def _table(name: str, *columns: "sa.Column[Any]") -> sa.Table:
    """Has a row's pipeline and sink before these columns, and compares text by its bytes."""
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("pipeline", sa.String(NAME_LENGTH), primary_key=True),
        sa.Column("sink", sa.String(NAME_LENGTH), primary_key=True),
        *columns,
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        mariadb_charset="utf8mb4",
        mariadb_collate="utf8mb4_bin",
    )


OFFSETS = _table(
    "_headwater_offsets",
    sa.Column("topic", sa.String(TOPIC_LENGTH), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("topic_id", sa.String(ID_LENGTH), nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
)
"""`target` is the table of the topic's rows, as JSON, empty before the first row; a row counts if
that table has the row's generation."""
KEY = ("pipeline", "sink", "topic", "partition", "generation")

COLUMNS = _table(
    "_headwater_columns",
    sa.Column("target", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("columns", sa.Text().with_variant(sa.Text(1 << 24), "mysql", "mariadb")),
)
"""`target` is a digest of the table's name; a row counts for the table of its generation."""


class OffsetRow(NamedTuple):
    partition: TopicPartition
    generation: int
    applied: AppliedOffset
    target: TableId | None


class StoredOffsets:
    """All offsets of one sink of one pipeline. The caller owns the transactions."""

    def __init__(self, pipeline: str, sink: str) -> None:
        self._pipeline, self._sink = pipeline, sink

    def is_there(self, connection: "Connection") -> bool:
        return sa.inspect(connection).has_table(OFFSETS.name)

    def ensure(self, connection: "Connection") -> None:
        """Creates the table; another process may do the same at this moment."""
        if self.is_there(connection):
            return
        try:
            OFFSETS.create(connection)
            connection.commit()
        except sa.exc.DBAPIError:
            connection.rollback()
            if not self.is_there(connection):
                raise

    def read(
        self, connection: "Connection", topics: Iterable[str], *, for_update: bool = False
    ) -> list[OffsetRow]:
        names, found = sorted(set(topics)), list[OffsetRow]()
        for start in range(0, len(names), IN_ONE_QUESTION):
            some = OFFSETS.c.topic.in_(names[start : start + IN_ONE_QUESTION])
            question = sa.select(OFFSETS).where(self._ours, some).order_by(*OFFSETS.primary_key)
            found += self._rows(connection, question.with_for_update() if for_update else question)
        return found

    def read_all(self, connection: "Connection") -> list[OffsetRow]:
        return self._rows(connection, sa.select(OFFSETS).where(self._ours))

    def insert(self, connection: "Connection", rows: Iterable[OffsetRow]) -> None:
        """Raises `sqlalchemy.exc.IntegrityError` if another process has just inserted the same."""
        values = [self._values(row) for row in rows]
        if values:
            connection.execute(OFFSETS.insert(), values)

    def replace(
        self, connection: "Connection", pairs: Iterable[tuple[OffsetRow, OffsetRow]]
    ) -> None:
        """Replaces each first row by the second; `read` has locked them."""
        changed = [
            {f"old_{name}": value for name, value in self._values(old).items() if name in KEY}
            | {f"new_{name}": value for name, value in self._values(new).items()}
            for old, new in pairs
        ]
        if not changed:
            return
        columns = [column.name for column in OFFSETS.columns if column.name not in KEY[:4]]
        statement = (
            OFFSETS.update()
            .where(*(OFFSETS.c[name] == sa.bindparam(f"old_{name}") for name in KEY))
            .values({name: sa.bindparam(f"new_{name}") for name in columns})
        )
        wanted = {f"old_{name}" for name in KEY} | {f"new_{name}" for name in columns}
        connection.execute(
            statement, [{k: v for k, v in each.items() if k in wanted} for each in changed]
        )

    def delete(self, connection: "Connection", rows: Iterable[OffsetRow]) -> None:
        for row in rows:
            where = (OFFSETS.c[name] == self._values(row)[name] for name in KEY)
            connection.execute(OFFSETS.delete().where(*where))

    @property
    def _ours(self) -> sa.ColumnElement[bool]:
        return sa.and_(OFFSETS.c.pipeline == self._pipeline, OFFSETS.c.sink == self._sink)

    def _rows(self, connection: "Connection", question: Any) -> list[OffsetRow]:
        return [
            OffsetRow(
                TopicPartition(row.topic, row.partition),
                row.generation,
                _read_applied(row.topic_id, row.next_offset),
                TableId(*orjson.loads(row.target)) if row.target else None,
            )
            for row in connection.execute(question)
        ]

    def _values(self, row: OffsetRow) -> dict[str, object]:
        return {
            "pipeline": self._pipeline,
            "sink": self._sink,
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "generation": row.generation,
            "topic_id": _stored_id(row.applied),
            "next_offset": row.applied.next_offset,
            "target": "" if row.target is None else orjson.dumps([*row.target]).decode(),
        }


def _stored_id(applied: AppliedOffset) -> str:
    """Returns the topic's id, followed by the leader epoch if that is known."""
    epoch = applied.leader_epoch
    return applied.topic_id if epoch < 0 else f"{applied.topic_id}:{epoch}"


def _read_applied(stored_id: str, next_offset: int) -> AppliedOffset:
    topic_id, _, epoch = stored_id.partition(":")
    return AppliedOffset(topic_id, next_offset, int(epoch or -1))


def check_offsets(stored: Mapping[TopicPartition, OffsetRow], start: AppliedOffsets) -> None:
    """Raises `Fenced` if the target's offsets are not the slice's start."""
    for partition, applied in start.items():
        row = stored.get(partition)
        if row is not None and row.applied != applied:
            raise Fenced(
                "the target was moved by another process",
                topic=partition.topic,
                partition=partition.partition,
                target=row.applied.next_offset,
                slice_start=applied.next_offset,
            )


class StoredColumns:
    """All column ids of one sink of one pipeline. The caller owns the transactions."""

    def __init__(self, pipeline: str, sink: str) -> None:
        self._pipeline, self._sink = pipeline, sink
        self._is_there = False

    def is_there(self, connection: "Connection") -> bool:
        self._is_there = self._is_there or sa.inspect(connection).has_table(COLUMNS.name)
        return self._is_there

    def forget(self) -> None:
        self._is_there = False

    def creation(self, connection: "Connection") -> str:
        return str(sa.schema.CreateTable(COLUMNS).compile(dialect=connection.dialect)).strip()

    def read(self, connection: "Connection", live: TableId, generation: int) -> ColumnIds:
        if not self.is_there(connection):
            return ColumnIds()
        question = sa.select(COLUMNS.c.columns).where(*self._of(live, generation))
        return ColumnIds.parse(connection.execute(question).scalar())

    def write(
        self, connection: "Connection", live: TableId, generation: int, column_ids: ColumnIds
    ) -> None:
        connection.execute(COLUMNS.delete().where(*self._of(live, generation)))
        values = {
            "pipeline": self._pipeline,
            "sink": self._sink,
            "target": _digest(live),
            "generation": generation,
            "columns": column_ids.text(),
        }
        connection.execute(COLUMNS.insert(), [values])

    def delete(self, connection: "Connection", live: TableId, *, before: int | None = None) -> None:
        """Deletes rows of all generations of a table, or of those before one."""
        if not self.is_there(connection):
            return
        where = [self._ours, COLUMNS.c.target == _digest(live)]
        if before is not None:
            where.append(COLUMNS.c.generation < before)
        connection.execute(COLUMNS.delete().where(*where))

    def drop_if_empty(self, connection: "Connection") -> bool:
        """Returns whether the table was dropped, because no other sink has rows in it."""
        if not self.is_there(connection):
            return False
        connection.execute(COLUMNS.delete().where(self._ours))
        if connection.execute(COLUMNS.select().limit(1)).first() is not None:
            return False
        COLUMNS.drop(connection)
        self.forget()
        return True

    @property
    def _ours(self) -> sa.ColumnElement[bool]:
        return sa.and_(COLUMNS.c.pipeline == self._pipeline, COLUMNS.c.sink == self._sink)

    def _of(self, live: TableId, generation: int) -> list[sa.ColumnElement[bool]]:
        return [
            self._ours,
            COLUMNS.c.target == _digest(live),
            COLUMNS.c.generation == generation,
        ]


def _digest(table: TableId) -> str:
    return sha256(orjson.dumps([*table])).hexdigest()
