"""A second copy of a table beside the live one, and the swap of both."""

from collections.abc import Collection
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.evolution import holds
from headwater.sinks.fold import warn_of_other_key, warn_of_other_types
from headwater.sinks.object_names import OWN
from headwater.sinks.sink import DELETED_AT, CarryOver, RebuildRecipe
from headwater.sinks.sql.change_buffer import moment_literal
from headwater.sinks.sql.dialects.dialect import OwnershipMark, qualify, run
from headwater.sinks.sql.failures import translate_errors
from headwater.sinks.sql.state_tables import OFFSETS
from headwater.sinks.sql.table_layout import SqlShadow, fit_columns
from headwater.sinks.sql.tables import OLD, SHADOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

    from headwater.sinks.sql.target import SqlTarget


def shadow_of(target: "SqlTarget", recipe: RebuildRecipe) -> SqlShadow:
    """Returns the copy in progress if its recipe is the same, or a new one."""
    table = recipe.table
    with translate_errors(target.dialect, table=str(table)):
        connection = target.connect()
        try:
            live = target.tables.live(table)
            existing = target.dialect.find(connection, live)
            if existing is None or (existing.mark is None and target.dialect.keeps_marks):
                raise SinkRejected(
                    "the table to copy does not exist", table=str(table), target=str(live)
                )
            begun = target.dialect.find(connection, target.tables.beside(live, SHADOW))
            mark = None if begun is None else begun.mark
            is_other = mark is not None and mark.recipe != recipe.digest and _is_ours(target, mark)
            if mark is not None and not is_other:
                generation = mark.generation
            else:
                generation = target.next_generation(connection, live)
        finally:
            connection.rollback()
        if is_other:
            _drop_copy(target, live)
        return SqlShadow(live, generation, recipe.newest, recipe.digest)


def _drop_copy(target: "SqlTarget", live: TableId) -> None:
    """Drops a copy of another recipe: its offsets count for no table from then on."""
    with _changing_tables(target) as connection:
        copy = target.tables.beside(live, SHADOW)
        run(connection, f"DROP TABLE {qualify(target.dialect, copy)}")


@contextmanager
def _changing_tables(target: "SqlTarget") -> "Iterator[sa.Connection]":
    """Runs one transaction; all cached facts about tables are read again after it."""
    connection = target.connect()
    connection.rollback()
    transaction = connection.begin()
    target.dialect.begin(connection)
    try:
        yield connection
        transaction.commit()
    except BaseException:
        transaction.rollback()
        target.rollback()
        raise
    target.tables.forget()
    target.dialect.forget()


def _is_ours(target: "SqlTarget", mark: OwnershipMark) -> bool:
    return (mark.pipeline, mark.sink) == (target.context.pipeline, target.context.name)


def swap(target: "SqlTarget", table: TableId, carry_over: CarryOver | None = None) -> str:
    """Swaps copy and live table. Stored offsets stay: those of the table in place count."""
    dialect = target.dialect
    live = target.tables.live(table)
    shadow, old = (target.tables.beside(live, suffix) for suffix in (SHADOW, OLD))
    with translate_errors(dialect, table=str(table)), _changing_tables(target) as connection:
        found = dialect.find(connection, shadow)
        if found is None or found.mark is None:
            raise SinkRejected(
                "the table has no copy to swap in",
                table=str(table),
                hint="headwater rebuild PIPELINE/TABLE makes one",
            )
        if carry_over is not None:
            _carry_over(target, connection, table, live, shadow, carry_over)
        if dialect.find(connection, old) is not None:
            run(connection, f"DROP TABLE {qualify(dialect, old)}")
        for statement in dialect.rename([(live, old), (shadow, live)]):
            run(connection, statement)
        rows = target.offsets.read_all(connection)
        # For the log's own topics the sink's offset counts, not the copy's.
        past = [
            row
            for row in rows
            if row.target == live
            and (row.generation < found.mark.generation or row.partition.topic.startswith("__"))
        ]
        target.offsets.delete(connection, past)
        target.columns.delete(connection, live, before=found.mark.generation)
    return str(old)


def _carry_over(
    target: "SqlTarget",
    connection: "sa.Connection",
    table: TableId,
    live: TableId,
    copy: TableId,
    carry_over: CarryOver,
) -> None:
    """Copies deleted rows that only the live table still has, with the columns that the copy
    has."""
    there, here = (_columns(target, connection, target_table) for target_table in (live, copy))
    own = {name for name in here if name.startswith(OWN)}
    is_marked = own == {DELETED_AT} and DELETED_AT in there
    settings = target.settings.of(str(table))
    is_unmarked = not own and settings.mode == "mirror" and settings.deletes == "ignore"
    if not is_marked and (not is_unmarked or carry_over.until_us is not None):
        return
    quote = target.dialect.quote
    conditions = [f"l.{quote(DELETED_AT)} IS NOT NULL"] if is_marked else []
    if carry_over.until_us is not None:
        conditions.append(f"l.{quote(DELETED_AT)} <= {moment_literal(carry_over.until_us)}")
    names = fit_columns(
        table,
        carry_over.key,
        bytes_max=target.dialect.name_bytes_max,
        is_case_sensitive=target.dialect.is_case_sensitive,
    )
    others = {name for name in here if name in there and not here[name].holds(there[name])}
    if not set(names.values()) <= set(there) - others:
        warn_of_other_key(table)
        return
    key = [quote(name) for name in names.values()]
    by_key = " AND ".join(f"c.{name} = l.{name}" for name in key)
    conditions += [f"l.{name} IS NOT NULL" for name in key]
    target_table = qualify(target.dialect, copy)
    conditions.append(f"NOT EXISTS (SELECT 1 FROM {target_table} c WHERE {by_key})")
    warn_of_other_types(table, others)
    chosen = ", ".join(quote(name) for name in here if name in there and name not in others)
    # Rows that a former key told apart may have one key by now.
    newest_first = ", ".join([f"l.{quote(DELETED_AT)} DESC"] if is_marked else key)
    run(
        connection,
        f"INSERT INTO {target_table} ({chosen}) SELECT {chosen} FROM (SELECT l.*, ROW_NUMBER() OVER"
        f" (PARTITION BY {', '.join(key)} ORDER BY {newest_first}) AS headwater_age"
        f" FROM {qualify(target.dialect, live)} l WHERE {' AND '.join(conditions)}) found"
        " WHERE headwater_age = 1",
    )


class StoredColumn(NamedTuple):
    """A column as the database has it."""

    type: pa.DataType | None
    """None if unknown."""
    name_of_type: str
    strict: str
    """Which texts it takes, such as JSON; empty if any."""

    def holds(self, narrow: "StoredColumn") -> bool:
        """Whether it takes the other's values, unchanged."""
        if self.type is None or narrow.type is None:
            return self[:2] == narrow[:2]
        return self.strict in ("", narrow.strict) and holds(self.type, narrow.type)


def _columns(
    target: "SqlTarget", connection: "sa.Connection", table: TableId
) -> dict[str, StoredColumn]:
    import sqlalchemy as sa

    found = sa.inspect(connection).get_columns(table.name, schema=table.namespace or None)
    kinds = {each["name"].replace("``", "`"): each["type"] for each in found}
    strict = target.dialect.find_strict_texts(connection, table, kinds)
    return {
        name: StoredColumn(target.dialect.arrow_type(kind), str(kind), strict.get(name, ""))
        for name, kind in kinds.items()
    }


def drop_table(target: "SqlTarget", table: TableId, topics: Collection[str]) -> list[str]:
    """Drops the table, its copies and its topics' offsets. Raises if it is another sink's."""
    removed: list[str] = []
    live = target.tables.live(table)
    with translate_errors(target.dialect, table=str(table)), _changing_tables(target) as connection:
        for target_table in (live, *(target.tables.beside(live, end) for end in (SHADOW, OLD))):
            found = target.dialect.find(connection, target_table)
            if found is None or found.mark is None:
                continue
            if not _is_ours(target, found.mark):
                raise SinkRejected(
                    "the table belongs to another pipeline or sink",
                    table=str(table),
                    target=str(target_table),
                    owner=f"{found.mark.pipeline}/{found.mark.sink}",
                )
            run(connection, f"DROP TABLE {qualify(target.dialect, target_table)}")
            removed.append(f"table {target_table}")
        target.columns.delete(connection, live)
        if target.offsets.is_there(connection):
            rows = target.offsets.read(connection, topics)
            target.offsets.delete(connection, rows)
            removed += [f"{len(rows)} stored offsets"] if rows else []
    return removed


def drop(target: "SqlTarget") -> list[str]:
    """Drops only tables with the mark of this sink of this pipeline."""
    removed: list[str] = []
    with translate_errors(target.dialect):
        connection = target.connect()
        if not target.offsets.is_there(connection):
            connection.rollback()
            return []
        connection.rollback()
        transaction = connection.begin()
        target.dialect.begin(connection)
        rows = target.offsets.read_all(connection)
        targets = {row.target for row in rows if row.target is not None}
        for live in sorted(targets):
            for target_table in (live, *(target.tables.beside(live, end) for end in (SHADOW, OLD))):
                found = target.dialect.find(connection, target_table)
                if found is not None and found.mark is not None and _is_ours(target, found.mark):
                    run(connection, f"DROP TABLE {qualify(target.dialect, target_table)}")
                    removed.append(f"table {target_table}")
        target.offsets.delete(connection, rows)
        removed += [f"{len(rows)} stored offsets"] if rows else []
        if connection.execute(OFFSETS.select().limit(1)).first() is None:
            OFFSETS.drop(connection)
            removed.append(f"table {OFFSETS.name}")
        if target.columns.drop_if_empty(connection):
            removed.append("table _headwater_columns")
        transaction.commit()
    target.tables.forget()
    target.dialect.forget()
    return removed
