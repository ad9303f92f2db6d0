"""Column ids of a target's tables, in the table `_headwater_columns` beside them."""

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.core_log.rows.text.bytes import from_hex
from headwater.core_log.rows.text.datetime import from_database_text, text_to_times
from headwater.core_log.rows.text.number import text_to_booleans, value_text
from headwater.sinks.column_ids import ColumnIds
from headwater.sinks.sql import nested_json

if TYPE_CHECKING:
    from sqlalchemy import Connection


NAME_LENGTH, DIGEST_LENGTH = 64, 64

TABLE = sa.Table(
    "_headwater_columns",
    sa.MetaData(),
    sa.Column("pipeline", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("sink", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("target", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("columns", sa.Text().with_variant(sa.Text(1 << 24), "mysql", "mariadb")),
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
    mariadb_charset="utf8mb4",
    mariadb_collate="utf8mb4_bin",
)
"""`target` is a digest of the table's name; a row counts for the table of its generation."""


class StoredColumns:
    """All column ids of one sink of one pipeline. The caller owns the transactions."""

    def __init__(self, pipeline: str, sink: str) -> None:
        self._pipeline, self._sink = pipeline, sink
        self._is_there = False

    def is_there(self, connection: "Connection") -> bool:
        self._is_there = self._is_there or sa.inspect(connection).has_table(TABLE.name)
        return self._is_there

    def forget(self) -> None:
        self._is_there = False

    def creation(self, connection: "Connection") -> str:
        return str(sa.schema.CreateTable(TABLE).compile(dialect=connection.dialect)).strip()

    def read(self, connection: "Connection", live: TableId, generation: int) -> ColumnIds:
        if not self.is_there(connection):
            return ColumnIds()
        question = sa.select(TABLE.c.columns).where(*self._of(live, generation))
        return ColumnIds.parse(connection.execute(question).scalar())

    def write(
        self, connection: "Connection", live: TableId, generation: int, column_ids: ColumnIds
    ) -> None:
        connection.execute(TABLE.delete().where(*self._of(live, generation)))
        values = {
            "pipeline": self._pipeline,
            "sink": self._sink,
            "target": _digest(live),
            "generation": generation,
            "columns": column_ids.text(),
        }
        connection.execute(TABLE.insert(), [values])

    def delete(self, connection: "Connection", live: TableId, *, before: int | None = None) -> None:
        """Deletes rows of all generations of a table, or of those before one."""
        if not self.is_there(connection):
            return
        where = [self._ours, TABLE.c.target == _digest(live)]
        if before is not None:
            where.append(TABLE.c.generation < before)
        connection.execute(TABLE.delete().where(*where))

    def drop_if_empty(self, connection: "Connection") -> bool:
        """Returns whether the table was dropped, because no other sink has rows in it."""
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


HEX_PREFIX = r"\x"
"""PostgreSQL's; other databases return bytes, or digits alone."""


def column_of(values: Any, kind: pa.DataType, *, name: str, table: str) -> pa.Array:
    """Returns text, or the driver's Python values, as values of `kind`."""
    try:
        return _to_types(values if isinstance(values, pa.Array) else _plain(values, kind), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError):
        raise SinkRejected(
            "a column of the target has values that are not of its type",
            table=table,
            column=name,
            type=str(kind),
            hint="another program has written to the table: headwater rebuild PIPELINE/TABLE "
            "--swap makes it again",
        ) from None


def _plain(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Returns numbers and bytes as they are, all other values as text."""
    if all(value is None or type(value) is bytes for value in values):
        is_binary = _is_binary(kind)
        return pa.array(values if is_binary else [value_text(value) for value in values])
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if is_number and not any(isinstance(value, str) for value in values):
        return pa.array(values, pa.float64() if pa.types.is_floating(kind) else None)
    return pa.array([value_text(value) for value in values], pa.string())


def _to_types(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    if not pa.types.is_string(values.type):
        return values.cast(kind)
    if pa.types.is_boolean(kind):
        return text_to_booleans(values)
    if _is_binary(kind):
        has_prefix = pc.any(pc.starts_with(values, HEX_PREFIX)).as_py()
        return from_hex(values, prefix=HEX_PREFIX if has_prefix else "").cast(kind)
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        bare = pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind
        return from_database_text(values, bare).cast(kind)
    if pa.types.is_time(kind):
        return text_to_times(values, kind, may_exceed_a_day=True)
    if pa.types.is_nested(kind):
        return nested_json.read(values, kind, _to_types)
    if pa.types.is_duration(kind):
        return values.cast(pa.int64()).cast(kind)
    return (_without_zeros(values) if pa.types.is_integer(kind) else values).cast(kind)


def _without_zeros(values: pa.Array) -> pa.Array:
    """The table's column may be one of decimals, as the source's was before."""
    return pc.replace_substring_regex(values, r"\.0+$", "")


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
