"""Any other database that SQLAlchemy supports: its statements, row by row."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.model.table_schema import Column, TableId
from headwater.core_log.rows.text.datetime import are_near, are_within
from headwater.sinks.sql.database_values import text_of
from headwater.sinks.sql.dialects.dialect import (
    ColumnFit,
    Dialect,
    DriverProblem,
    ExistingTable,
    OwnershipMark,
    RowCondition,
    UpsertKey,
    column_list,
    qualify,
    read_mark,
    same_values,
)

if TYPE_CHECKING:
    import sqlalchemy as sa

US = pa.timestamp("us")
DIGITS_MAX = 38
KEY_LENGTH = 255


class GenericDialect(Dialect):
    """Uses only what SQL's standard and SQLAlchemy have in common."""

    is_case_sensitive = False
    has_transactional_ddl = False

    def __init__(self, engine: "sa.Engine") -> None:
        self._engine = engine
        self.name = engine.dialect.name
        self.name_bytes_max = min(engine.dialect.max_identifier_length, 128)
        self.keeps_marks = engine.dialect.supports_comments
        self._tables: dict[TableId, Any] = {}

    def quote(self, name: str) -> str:
        preparer = self._engine.dialect.identifier_preparer
        return f"{preparer.initial_quote}{preparer._escape_identifier(name)}{preparer.final_quote}"

    def prepare(self, connection: "sa.Connection") -> None:
        pass

    def forget(self) -> None:
        self._tables.clear()

    def fit(self, column: Column, *, is_key: bool) -> ColumnFit:
        found, holds = _sqlalchemy_type(column.type, is_key=is_key)
        return ColumnFit(found.compile(dialect=self._engine.dialect), holds)

    def arrow_type(self, kind: object) -> pa.DataType | None:
        """Returns the type of decimals only: databases round these, and refuse other values that do
        not fit."""
        from sqlalchemy import types as st

        if not isinstance(kind, st.Numeric) or isinstance(kind, st.Float):
            return None
        if kind.precision is None or kind.precision > DIGITS_MAX:
            return None
        return pa.decimal128(kind.precision, kind.scale or 0)

    def find(self, connection: "sa.Connection", table: TableId) -> ExistingTable | None:
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        if not inspector.has_table(table.name, schema=table.namespace or None):
            return None
        try:
            comment = inspector.get_table_comment(table.name, schema=table.namespace or None)
        except NotImplementedError:
            return ExistingTable(None, is_empty=False)
        return ExistingTable(read_mark(comment["text"]), is_empty=False)

    def create(
        self, table: TableId, columns: Mapping[str, str], *, key: Sequence[str], mark: OwnershipMark
    ) -> list[str]:
        name = qualify(self, table)
        comment = [f"COMMENT ON TABLE {name} IS '{mark}'"] if self.keeps_marks else []
        return [f"CREATE TABLE {name} ({column_list(self, columns, key)})", *comment]

    def rename_column(self, table: TableId, column: str, becomes: str) -> list[str] | None:
        return None

    def insert(self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            connection.execute(self._table(connection, table).insert(), _values(rows))

    def upsert(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, by: UpsertKey
    ) -> None:
        self.delete(connection, table, rows.select(list(by.columns)), same_values(by.columns))
        self.insert(connection, table, rows)

    def update(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        import sqlalchemy as sa

        there = self._table(connection, table)
        sets = {
            name: sa.bindparam(f"v{rows.schema.get_field_index(name)}", type_=there.c[name].type)
            for name in which.find_unmatched(rows.schema.names)
        }
        statement = there.update().where(*_conditions(there, rows, which)).values(sets)
        if rows.num_rows:
            connection.execute(statement, _number(rows))

    def delete(
        self, connection: "sa.Connection", table: TableId, rows: pa.RecordBatch, which: RowCondition
    ) -> None:
        there = self._table(connection, table)
        if rows.num_rows:
            connection.execute(
                there.delete().where(*_conditions(there, rows, which)), _number(rows)
            )

    def find_rejected(self, rows: pa.RecordBatch) -> Mapping[int, str]:
        """Returns times that Python does not have: 24:00 and years after 9999."""
        found: dict[int, str] = {}
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
                rows_found = pc.indices_nonzero(pc.invert(_are_pythons(column))).to_pylist()
                found |= dict.fromkeys(
                    rows_found, f"column {name} has a time that drivers do not take"
                )
        return found

    def problem(self, error: BaseException) -> tuple[DriverProblem, str]:
        """Classifies by the kinds of errors that every driver has."""
        kinds = {kind.__name__ for kind in type(error).__mro__}
        reason = type(error).__name__
        if "DataError" in kinds:
            return DriverProblem.VALUE, f"a value does not fit its column ({reason})"
        if "IntegrityError" in kinds:
            return DriverProblem.TAKEN, f"a row breaks a constraint ({reason})"
        if kinds & {"OperationalError", "InterfaceError", "InternalError"}:
            return DriverProblem.AWAY, f"the database does not take it just now ({reason})"
        return DriverProblem.REFUSED, f"the database refused it ({reason})"

    def _table(self, connection: "sa.Connection", table: TableId) -> Any:
        import sqlalchemy as sa

        if table not in self._tables:
            self._tables[table] = sa.Table(
                sa.quoted_name(table.name, True),
                sa.MetaData(),
                schema=table.namespace or None,
                autoload_with=connection,
            )
        return self._tables[table]


def _values(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [_plain(column) for column in rows.columns]
    found: list[dict[str, Any]] = pa.RecordBatch.from_arrays(
        columns, names=rows.schema.names
    ).to_pylist()
    return found


def _are_pythons(column: pa.Array) -> pa.BooleanArray:
    if pa.types.is_time(column.type):
        return are_within(column)
    if are_near(column):
        return pa.repeat(True, len(column))
    return pa.array([are_near(column.slice(row, 1)) for row in range(len(column))])


def _plain(column: pa.Array) -> pa.Array:
    """Returns values that every driver takes."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit != "ns":
        return column.cast(US)
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    is_fine = pa.types.is_time(kind) and kind.unit != "ns"
    if is_fine or (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)):
        return column
    if pa.types.is_date(kind) or pa.types.is_binary(kind):
        return column
    if pa.types.is_decimal(kind) and kind.precision <= DIGITS_MAX:
        return column
    return text_of(column)


def _number(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Returns the values under names that cannot be a column's."""
    return _values(rows.rename_columns([f"v{number}" for number in range(rows.num_columns)]))


def _conditions(there: Any, rows: pa.RecordBatch, which: RowCondition) -> list[Any]:
    import sqlalchemy as sa

    found = [there.c[which.where].is_(sa.true())] if which.where else []
    found += [there.c[which.unset].is_(sa.null())] if which.unset else []
    for name, operator in which.match:
        number = rows.schema.get_field_index(name)
        value = sa.bindparam(f"v{number}", type_=there.c[name].type)
        found.append(there.c[name] >= value if operator == ">=" else there.c[name] == value)
    return found


def _sqlalchemy_type(kind: pa.DataType, *, is_key: bool) -> tuple[Any, pa.DataType]:
    import sqlalchemy as sa

    length = KEY_LENGTH if is_key else None
    if pa.types.is_decimal(kind) and kind.precision <= DIGITS_MAX and kind.scale >= 0:
        return sa.Numeric(kind.precision, kind.scale), kind
    choices: tuple[tuple[bool, Any, pa.DataType], ...] = (
        (pa.types.is_boolean(kind), sa.Boolean(), pa.bool_()),
        (kind in (pa.int8(), pa.int16(), pa.uint8()), sa.SmallInteger(), pa.int16()),
        (kind in (pa.int32(), pa.uint16()), sa.Integer(), pa.int32()),
        (kind in (pa.int64(), pa.uint32()), sa.BigInteger(), pa.int64()),
        (pa.types.is_duration(kind), sa.BigInteger(), pa.int64()),
        (kind == pa.uint64(), sa.Numeric(20, 0), pa.decimal128(20, 0)),
        (pa.types.is_floating(kind), sa.Double(), pa.float64()),
        (pa.types.is_date(kind), sa.Date(), pa.date32()),
        (pa.types.is_timestamp(kind) and kind.unit != "ns", sa.DateTime(), US),
        (pa.types.is_time(kind) and kind.unit != "ns", sa.Time(), pa.time64("us")),
        (pa.types.is_binary(kind), sa.LargeBinary(length), pa.binary()),
        (is_key, sa.String(KEY_LENGTH), pa.string()),
    )
    text = sa.Text(), pa.string()
    return next(((found, holds) for fits, found, holds in choices if fits), text)
