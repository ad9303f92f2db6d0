"""Empty databases of every kind, with a sink on them and a reader of its own beside it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pydantic import SecretStr

from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.sinks.sink import SinkContext
from headwater.sinks.sql.settings import SqlSettings
from headwater.sinks.sql.sink import SqlSink
from tests.databases import database_in
from tests.slices import schema_of

KINDS = ("sqlite", "postgresql", "mariadb")
POISONS = {
    "sqlite": (schema_of("public.orders", id=pa.int64(), x=pa.float64()), float("nan")),
    "postgresql": (schema_of("public.orders", id=pa.int64(), x=pa.string()), "a\0b"),
    "mariadb": (schema_of("public.orders", id=pa.int64(), x=pa.float64()), float("inf")),
}
_numbers = count(1)


class SqlBench:
    """Satisfies `tests.contract.sink_suite.Bench`."""

    def __init__(self, kind: str, url: str, directory: Path) -> None:
        self.kind, self.url, self.directory = kind, url, directory
        self.engine = engine_at(url, directory=directory, timeout_ms=10_000)

    def sink(
        self,
        *,
        pipeline: str = "shop",
        name: str = "sql",
        schema_changes: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> SqlSink:
        context = SinkContext(pipeline, self.directory, schema_changes or {}, SystemClock(), name)
        return SqlSink(SqlSettings(url=SecretStr(self.url), **settings), context)

    async def rows(self, table: str) -> list[dict[str, Any]]:
        name = table.rpartition(".")[2]
        if not sa.inspect(self.engine).has_table(name):
            return []
        return [
            {column: value for column, value in row.items() if not column.startswith("_headwater_")}
            for row in self.all_rows(name)
        ]

    def all_rows(self, name: str, *, namespace: str | None = None) -> list[dict[str, Any]]:
        """With our own columns."""
        with self.engine.connect() as connection:
            table = sa.Table(
                sa.quoted_name(name, True),
                sa.MetaData(),
                schema=namespace,
                autoload_with=connection,
            )
            return [dict(row._mapping) for row in connection.execute(table.select())]

    def all_tables(self) -> set[str]:
        return set(sa.inspect(self.engine).get_table_names())

    def poison(self) -> tuple[TableSchema, dict[str, Any]]:
        schema, value = POISONS[self.kind]
        return schema, {"id": 5, "x": value}

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def quote(self, name: str) -> str:
        return self.engine.dialect.identifier_preparer.quote_identifier(name)


@contextmanager
def sql_bench(kind: str, address: str | None, directory: Path) -> Iterator[SqlBench]:
    """`address` is the server's; SQLite has none."""
    if address is None:
        yield SqlBench(kind, "sqlite:///target.db", directory)
        return
    with database_in(address, f"t{next(_numbers)}") as url:
        bench = SqlBench(kind, url, directory)
        yield bench
        bench.engine.dispose()


def table_of(name: str) -> TableId:
    namespace, _, last = name.rpartition(".")
    return TableId(namespace, last)
