"""Converts rows from a table's pages to changes of the kind READ."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
from psycopg import sql

from headwater.connectors.postgres.catalog import CapturedTable
from headwater.connectors.postgres.events.event_metadata import SourceOrigin
from headwater.connectors.postgres.events.rejects import RejectedRows, sifted_rows
from headwater.connectors.postgres.server.connection import PgConnection, connect, in_our_words
from headwater.connectors.postgres.server.lsn import lsn_text
from headwater.connectors.postgres.settings import PostgresSettings
from headwater.connectors.postgres.snapshot.chunk_planner import TableSize
from headwater.connectors.postgres.snapshot.copy import Copier, CopyStop, CopyTuples, decode_tuples
from headwater.connectors.postgres.snapshot.progress import Pages
from headwater.connectors.postgres.types.column_reader import ColumnPlan, with_nan
from headwater.connectors.postgres.wal.kernels import Kernels, chosen_kernels
from headwater.connectors.snapshot.time_window import RateLimit, TimeWindow
from headwater.connectors.source import SourceContext
from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.model.changes import ColumnOrValue, Operation, TableChanges, source_times
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.rows.rejects import UNFIT

Lose = Callable[[pa.RecordBatch], None]
"""Called with the keys of rejected rows, null if the key itself cannot be read, and nulls."""


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """The time and the LSN of a snapshot."""

    lsn: int
    xid: int
    """The first transaction that had not begun."""
    at_us: int


@dataclass(slots=True)
class RowMapper:
    """The common parts of all snapshots; a rate limit for all readers together."""

    settings: PostgresSettings
    context: SourceContext
    origin: SourceOrigin
    set_aside: RejectedRows = field(default_factory=RejectedRows)
    kernels: Kernels = field(default_factory=chosen_kernels)
    throttle: RateLimit = field(init=False)
    hours: TimeWindow = field(init=False)

    def __post_init__(self) -> None:
        snapshot = self.settings.snapshot
        self.throttle = RateLimit(self.context.clock, snapshot.max_rows_per_second)
        self.hours = TimeWindow(snapshot.between, self.context)

    async def connect(self) -> PgConnection:
        return await connect(self.settings, name=f"headwater {self.context.pipeline} snapshot")

    def copier(self, connection: PgConnection, *, is_only_for_copies: bool = False) -> Copier:
        return Copier(connection, self.kernels, is_only_for_copies)

    def where_of(self, table: CapturedTable) -> str:
        """Returns the file's condition for rows of the initial snapshot."""
        for text, condition in self.settings.snapshot.where.items():
            if Pattern(text).matches(str(table.table)):
                return condition
        return ""

    async def pieces(
        self,
        copier: Copier,
        table: CapturedTable,
        statement: sql.Composable,
        lose: Lose = lambda _: None,
        set_aside: RejectedRows | None = None,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Yields the rows of the statement; calls `lose` with the keys of rejected ones. If it is
        not read to its end, the connection cannot be used any more."""
        stop, facts = CopyStop(), {"table": str(table.table)}
        rejected = self.set_aside if set_aside is None else set_aside
        copied = copier.copy_blocks(statement.as_bytes(copier.connection), stop)
        advancing: asyncio.Future[pa.RecordBatch | None] | None = None
        try:
            while True:
                following = partial(_following, table, copied, self.kernels, rejected, lose)
                advancing = asyncio.ensure_future(asyncio.to_thread(following))
                with in_our_words("the rows cannot be read", **facts):
                    rows = await asyncio.shield(advancing)
                if rows is None:
                    return
                await self.throttle.passing(rows.num_rows)
                yield rows
        finally:
            stop.is_wanted = True
            if advancing is not None:
                try:
                    await wait_for_end(advancing)
                finally:
                    if not advancing.cancelled():
                        advancing.exception()  # it was raised, or is not needed any more

    def changes(
        self,
        table: CapturedTable,
        rows: pa.RecordBatch,
        moment: SnapshotPoint,
        *,
        snapshot: ColumnOrValue,
    ) -> TableChanges:
        return TableChanges(
            schema=_schema_of(table, rows),
            rows=rows,
            operations=pa.array(np.full(rows.num_rows, Operation.READ, np.uint8)),
            source=self.origin.block(
                table.table,
                source_times(moment.at_us),
                snapshot=snapshot,
                sequence=f'[null,"{moment.lsn}"]',
                xid=moment.xid,
                lsn=moment.lsn,
            ),
            commits=lsn_text(moment.lsn),
        )

    def truncation(self, table: CapturedTable, moment: SnapshotPoint) -> TableChanges:
        """Returns a truncate of the table in the log, before all of its rows are read again."""
        schema = table.schema.arrow
        nothing = pa.RecordBatch.from_arrays(
            [pa.nulls(1, each.type) for each in schema], schema=schema
        )
        changes = self.changes(table, nothing, moment, snapshot="incremental")
        return replace(changes, operations=pa.array([Operation.TRUNCATE], pa.uint8()))


def statement_of(
    table: CapturedTable,
    size: TableSize,
    pages: Pages,
    *,
    where: str = "",
    unless: str = "",
    rows_max: int | None = None,
) -> sql.Composed:
    """Returns a query of the published rows. ONLY, because inheriting tables are captured
    separately. `where`, the user's, and `unless`, ours, are SQL conditions."""
    start, end = pages
    conditions: list[sql.Composable] = [
        sql.SQL("ctid >= {}").format(sql.Literal(f"({start},0)")),
        sql.SQL("ctid < {}").format(sql.Literal(f"({end},0)")),
    ]
    conditions += [
        sql.SQL("(\n{}\n)").format(verbatim(each)) for each in (table.condition, where) if each
    ]
    if unless:
        conditions.append(sql.SQL("NOT ({})").format(verbatim(unless)))
    columns = [sql.SQL(plan.asked).format(sql.Identifier(plan.column.name)) for plan in table.plans]
    limit = sql.SQL("") if rows_max is None else sql.SQL(" LIMIT {}").format(rows_max)
    return sql.SQL("COPY (SELECT {} FROM ONLY {} WHERE {}{}) TO STDOUT (FORMAT binary)").format(
        sql.SQL(", ").join(columns),
        sql.Identifier(size.namespace, size.name),
        sql.SQL(" AND ").join(conditions),
        limit,
    )


def verbatim(condition: str) -> sql.Composable:
    """Returns the user's SQL on separate lines, so that a comment in it ends there."""
    return sql.SQL(condition.replace("{", "{{").replace("}", "}}")).format()


def _following(
    table: CapturedTable,
    pieces: Iterator[CopyTuples],
    kernels: Kernels,
    set_aside: RejectedRows,
    lose: Lose,
) -> pa.RecordBatch | None:
    piece = next(pieces, None)
    if piece is None:
        return None
    are_texts = [plan.form is None for plan in table.plans]
    sent, has_unreadable = decode_tuples(piece, are_texts, kernels)
    if not has_unreadable:
        with suppress(*UNFIT):
            return _to_types(table.plans, sent)
    plans = with_nan(table.plans, sent, table.schema.key)
    fitting, rejects, keys = sifted_rows(sent, plans, table.table, table.schema.key)
    set_aside.add(rejects)
    if rejects:
        lose(_only_keys(table, keys, len(rejects)))
    return _to_types(plans, fitting)


def _only_keys(table: CapturedTable, keys: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    """Returns rows of the key only."""
    columns = [keys.get(each.name, pa.nulls(count, each.type)) for each in table.schema.arrow]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema.arrow)


def _to_types(plans: Sequence[ColumnPlan], sent: Sequence[pa.Array]) -> pa.RecordBatch:
    columns = [plan.read_copied(each) for plan, each in zip(plans, sent, strict=True)]
    schema = pa.schema([pa.field(plan.column.name, plan.column.type) for plan in plans])
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _schema_of(table: CapturedTable, rows: pa.RecordBatch) -> TableSchema:
    """Returns the table's schema, except for decimals that were read as text."""
    if rows.schema == table.schema.arrow:
        return table.schema
    columns = tuple(
        plan.with_nan.column
        if plan.with_nan is not None and held == plan.with_nan.column.type
        else plan.column
        for plan, held in zip(table.plans, rows.schema.types, strict=True)
    )
    return replace(table.schema, columns=columns)
