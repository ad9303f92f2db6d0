"""A target table read in one transaction: its rows and its offsets."""

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.log import is_later_generation
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.fold import NONE, key_codes
from headwater.sinks.object_names import IS_CURRENT, OFFSET, OP, PARTITION, TOPIC
from headwater.sinks.sink import DELETED_AT, AppliedOffsets, DeletedRows
from headwater.sinks.sql.database_values import column_of
from headwater.sinks.sql.dialects.dialect import Dialect, qualify, run
from headwater.sinks.sql.failures import translate_errors
from headwater.sinks.sql.table_layout import US, SqlTableLayout

if TYPE_CHECKING:
    import sqlalchemy as sa

    from headwater.sinks.sql.target import SqlTarget

PAGE_ROWS = 50_000
BEGINNINGS = {
    "postgresql": ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",),
    "mysql": (
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
    ),
    "sqlite": ("BEGIN",),
}
"""Statements that begin a consistent read; other databases use their default."""


@dataclass(frozen=True, slots=True)
class OpenedSqlTable:
    """A table that is open until `close_contents` ends its transaction."""

    offsets: AppliedOffsets
    columns: tuple[str, ...]
    deleted: DeletedRows
    pages: Generator[pa.RecordBatch, None, None]


def open_contents(
    target: "SqlTarget", schema: TableSchema, topics: Collection[str]
) -> OpenedSqlTable:
    """Opens a table without locks; writers continue."""
    dialect = target.dialect
    target.leave_limited_connection()
    with translate_errors(dialect, table=str(schema.table)):
        connection = target.connect()
        connection.rollback()
        for statement in BEGINNINGS.get(dialect.name, ()):
            run(connection, statement)
        target_name = target.tables.target_name(schema.table)
        if dialect.find(connection, target_name) is None:
            return OpenedSqlTable({}, schema.names, DeletedRows.GONE, _no_pages())
        offsets = target.read_committed_offsets(connection, sorted(topics))
        layout = target.shaping(schema).layout
        there = _columns(connection, target_name)
        names = tuple(
            name
            for name in schema.names
            if layout.names.get(name) in there and comes_back(dialect, schema, name)
        )
        statement = question_of(dialect, layout, names, schema, sorted(topics))
        fields, deleted = [schema.arrow.field(name) for name in names], DeletedRows.GONE
        if layout.mode == "soft_delete":
            fields, deleted = [*fields, pa.field(DELETED_AT, US)], DeletedRows.MARKED
        elif layout.ignores_deletes:
            deleted = DeletedRows.STAY
        return OpenedSqlTable(offsets, names, deleted, pages_of(target, statement, schema, fields))


def close_contents(target: "SqlTarget", opened: OpenedSqlTable) -> None:
    """Ends the transaction, also before all rows are read."""
    opened.pages.close()
    if target.dialect.name == "sqlite":
        run(target.connect(), "ROLLBACK")
    target.connect().rollback()
    target.connect().connection.rollback()


def _columns(connection: "sa.Connection", target_name: TableId) -> set[str]:
    import sqlalchemy as sa

    found = sa.inspect(connection).get_columns(
        target_name.name, schema=target_name.namespace or None
    )
    return {each["name"].replace("``", "`") for each in found}


def comes_back(dialect: Dialect, schema: TableSchema, name: str) -> bool:
    """Returns whether values come back unchanged; MySQL stores JSON in its own form and order."""
    fit = dialect.fit(schema.column(name), is_key=name in schema.key)
    return not (dialect.name == "mysql" and fit.sql == "JSON")


def question_of(
    dialect: Dialect,
    layout: SqlTableLayout,
    names: tuple[str, ...],
    schema: TableSchema,
    topics: Sequence[str],
    *,
    among: str | None = None,
) -> str:
    """Returns the statement that reads the current rows, all of them or `among` some."""
    table = f"{among} chosen" if among else qualify(dialect, layout.table)
    listed = ", ".join(select_columns(dialect, layout, schema, names))
    if layout.mode == "soft_delete":
        return f"SELECT {listed}, {dialect.quote(DELETED_AT)} FROM {table}"
    if layout.mode == "scd2":
        return f"SELECT {listed} FROM {table} WHERE {dialect.quote(IS_CURRENT)}"
    if layout.mode == "append" and schema.key:
        return _newest_of_each(dialect, layout, listed, schema, topics, among=among)
    return f"SELECT {listed} FROM {table}"


def _newest_of_each(
    dialect: Dialect,
    layout: SqlTableLayout,
    listed: str,
    schema: TableSchema,
    topics: Sequence[str],
    *,
    among: str | None,
) -> str:
    """Selects the last change of every key since the last truncate of its partition, unless it is a
    delete.

    A truncate in a later generation of its topic counts too. A later generation has a longer name,
    or one that sorts behind.
    """
    table, op = qualify(dialect, layout.table), dialect.quote(OP)
    topic, partition, offset = (dialect.quote(name) for name in (TOPIC, PARTITION, OFFSET))
    keys = ", ".join(dialect.quote(layout.names[name]) for name in schema.key)
    truncated = (
        f"SELECT {topic} AS t, {partition} AS p, MAX({offset}) AS o FROM {table}"
        f" WHERE {op} = 't' GROUP BY {topic}, {partition}"
    )
    numbered = (
        f"SELECT changes.*, ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY LENGTH({topic}) DESC,"
        f" {topic} DESC, {offset} DESC) AS"
        f" headwater_age FROM {among or table} changes LEFT JOIN ({truncated}) truncates"
        f" ON changes.{topic} = truncates.t AND changes.{partition} = truncates.p"
        f" WHERE (truncates.o IS NULL OR changes.{offset} > truncates.o)"
    )
    for former in topics:
        later = [each for each in topics if is_later_generation(each, than=former)]
        if later:
            listed_topics = ", ".join(f"'{each}'" for each in later)
            numbered += (
                f" AND NOT (changes.{topic} = '{former}' AND EXISTS (SELECT 1 FROM {table} later"
                f" WHERE later.{op} = 't' AND later.{topic} IN ({listed_topics})))"
            )
    return f"SELECT {listed} FROM ({numbered}) newest WHERE headwater_age = 1 AND {op} <> 'd'"


def select_columns(
    dialect: Dialect, layout: SqlTableLayout, schema: TableSchema, names: Sequence[str]
) -> list[str]:
    """Returns columns of the table as a SELECT names them."""
    return [_select(dialect, layout.names[name], schema.column(name).type) for name in names]


def _select(dialect: Dialect, column: str, kind: pa.DataType) -> str:
    """Selects a column; MySQL shows only six digits of its single precision."""
    name = dialect.quote(column)
    is_short = dialect.name == "mysql" and kind == pa.float32()
    return f"CAST({name} AS DOUBLE)" if is_short else name


def key_rows_of(keys: pa.RecordBatch, found: pa.RecordBatch) -> Int64Array:
    """Returns the place of each found row's key, or `NONE`."""
    both = pa.concat_batches([keys, found.cast(keys.schema)])
    codes, count = key_codes(both)
    key_rows: Int64Array = np.full(count, NONE)
    key_rows[codes[: len(keys)]] = np.arange(len(keys))
    return key_rows[codes[len(keys) :]]


def _no_pages() -> Generator[pa.RecordBatch, None, None]:
    yield from ()


def pages_of(
    target: "SqlTarget", statement: str, schema: TableSchema, fields: Sequence[pa.Field]
) -> Generator[pa.RecordBatch, None, None]:
    reading = _read(target.dialect, target.connect(), statement, len(fields))
    with translate_errors(target.dialect, table=str(schema.table)), closing(reading) as pages:
        for columns in pages:
            deleted = columns[-1] if fields[-1].name == DELETED_AT else None
            arrays = [
                _column_of(values, field, schema, deleted)
                for values, field in zip(columns, fields, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _column_of(
    values: Any, field: pa.Field, schema: TableSchema, deleted: Sequence[Any] | None
) -> pa.Array:
    """A deleted row may have a value of a former type, if the database stores any: it is null.
    `deleted`: the rows' times of deletion, if the table keeps them."""
    convert = partial(column_of, kind=field.type, name=field.name, table=str(schema.table))
    try:
        return convert(values)
    except SinkRejected:
        if deleted is None or field.name in schema.key:
            raise
        kept = [
            value if time is None or _fits(convert, value) else None
            for value, time in zip(_plain(values), _plain(deleted), strict=True)
        ]
        return convert(kept)


def _plain(values: Any) -> Sequence[Any]:
    found: Sequence[Any] = values.to_pylist() if isinstance(values, pa.Array) else values
    return found


def _fits(convert: Callable[[Any], pa.Array], value: Any) -> bool:
    try:
        convert([value])
    except SinkRejected:
        return False
    return True


def _read(
    dialect: Dialect, connection: "sa.Connection", statement: str, width: int
) -> Generator[list[Any], None, None]:
    """Yields pages of columns, each a text column or a list of the driver's values."""
    if dialect.name == "postgresql":
        yield from _copy(connection, statement, width)
        return
    driver: Any = connection.connection.driver_connection
    if dialect.name == "mysql":
        from pymysql.cursors import SSCursor

        decoders, driver.decoders = driver.decoders, {}
        cursor = driver.cursor(SSCursor)
    else:
        decoders, cursor = None, connection.connection.cursor()
    try:
        cursor.execute(statement)
        while rows := cursor.fetchmany(PAGE_ROWS):
            yield [list(column) for column in zip(*rows, strict=True)]
    finally:
        cursor.close()
        if decoders is not None:
            driver.decoders = decoders


def _copy(connection: "sa.Connection", statement: str, width: int) -> Iterator[list[pa.Array]]:
    """Reads by PostgreSQL's COPY as CSV, in which a null is empty and an empty text is quoted."""
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(f"COPY ({statement}) TO STDOUT CSV") as copy:
        lines: list[bytes] = []
        for line in copy:
            lines.append(bytes(line))
            if len(lines) == PAGE_ROWS:
                yield _parse(lines, width)
                lines = []
        if lines:
            yield _parse(lines, width)


def _parse(lines: list[bytes], width: int) -> list[pa.Array]:
    from pyarrow import csv

    names, data = [str(number) for number in range(width)], b"".join(lines)
    found = csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(data) + 1
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in found.columns]
