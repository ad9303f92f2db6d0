"""A second copy of a table beside the live one, and the step in which they change places."""

from contextlib import contextmanager
from typing import TYPE_CHECKING

from core_log.errors import SinkRejected
from core_log.table_schema import TableId
from sinks.sink import Recipe
from sinks.sql.dialects.dialect import qualified, run
from sinks.sql.failures import translated
from sinks.sql.mark import Mark
from sinks.sql.naming import OLD, SHADOW
from sinks.sql.offsets import TABLE
from sinks.sql.tables import Shadow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import sqlalchemy as sa

    from sinks.sql.target import Target


def shadow_of(target: "Target", recipe: Recipe) -> Shadow:
    """The copy that is in the making already, if it is made by the same recipe, or a new one."""
    table = recipe.table
    with translated(target.dialect, table=str(table)):
        connection = target.connected()
        try:
            live = target.tables.live(table)
            held = target.dialect.find(connection, live)
            if held is None or (held.mark is None and target.dialect.keeps_marks):
                raise SinkRejected(
                    "there is no table to make a copy of", table=str(table), target=str(live)
                )
            begun = target.dialect.find(connection, target.tables.beside(live, SHADOW))
            mark = None if begun is None else begun.mark
            if mark is not None and (mark.recipe == recipe.digest or not _is_ours(target, mark)):
                generation = mark.generation
            else:
                generation = target.next_generation(connection, live)
        finally:
            connection.rollback()
        if mark is not None and mark.generation != generation:
            _drop_copy(target, live)
        return Shadow(live, generation, recipe.newest, recipe.digest)


def _drop_copy(target: "Target", live: TableId) -> None:
    """One that was filled by other rules: its offsets count for no table from then on."""
    with _changing_tables(target) as connection:
        copy = target.tables.beside(live, SHADOW)
        run(connection, f"DROP TABLE {qualified(target.dialect, copy)}")


@contextmanager
def _changing_tables(target: "Target") -> "Iterator[sa.Connection]":
    """One transaction, after which all that is known of tables is asked anew."""
    connection = target.connected()
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


def _is_ours(target: "Target", mark: Mark) -> bool:
    return (mark.pipeline, mark.sink) == (target.context.pipeline, target.context.name)


def swap(target: "Target", table: TableId) -> str:
    """The stored offsets need no change: those count that the table in place names."""
    dialect = target.dialect
    live = target.tables.live(table)
    shadow, old = (target.tables.beside(live, suffix) for suffix in (SHADOW, OLD))
    with translated(dialect, table=str(table)), _changing_tables(target) as connection:
        found = dialect.find(connection, shadow)
        if found is None or found.mark is None:
            raise SinkRejected(
                "there is no copy to put in the table's place",
                table=str(table),
                hint="`headwater rebuild` makes one",
            )
        if dialect.find(connection, old) is not None:
            run(connection, f"DROP TABLE {qualified(dialect, old)}")
        for statement in dialect.rename([(live, old), (shadow, live)]):
            run(connection, statement)
        rows = target.offsets.read_all(connection)
        # Of the log's own topics the sink's stand counts, not that of the copy.
        past = [
            row
            for row in rows
            if row.target == live
            and (row.generation < found.mark.generation or row.partition.topic.startswith("__"))
        ]
        target.offsets.delete(connection, past)
    return str(old)


def drop(target: "Target") -> list[str]:
    """Only tables that carry the mark of this sink of this pipeline."""
    said: list[str] = []
    with translated(target.dialect):
        connection = target.connected()
        if not target.offsets.is_there(connection):
            connection.rollback()
            return []
        connection.rollback()
        transaction = connection.begin()
        target.dialect.begin(connection)
        rows = target.offsets.read_all(connection)
        targets = {row.target for row in rows if row.target is not None}
        for live in sorted(targets):
            for place in (live, *(target.tables.beside(live, end) for end in (SHADOW, OLD))):
                found = target.dialect.find(connection, place)
                if found is not None and found.mark is not None and _is_ours(target, found.mark):
                    run(connection, f"DROP TABLE {qualified(target.dialect, place)}")
                    said.append(f"table {place}")
        target.offsets.delete(connection, rows)
        said += [f"{len(rows)} stored offsets"] if rows else []
        if connection.execute(TABLE.select().limit(1)).first() is None:
            TABLE.drop(connection)
            said.append(f"table {TABLE.name}")
        transaction.commit()
    target.tables.forget()
    target.dialect.forget()
    return said
