"""A database to be read, and the few words in which the tests talk about it."""

from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from headwater.connectors.source import SourceContext, SourceReport
from headwater.connectors.sql.settings import SqlSourceSettings
from headwater.connectors.sql.source import SqlSource
from headwater.core_log.foundation.database_url import engine_at
from headwater.core_log.model.changes import ChangeBatch, Operation
from tests.fakes import SimulatedClock

KINDS = ("sqlite", "postgresql", "mariadb")
OP_CODES = dict(zip(Operation, "rcudtr", strict=True))


class Shop:
    """Satisfies what the tests of the source need of any database."""

    def __init__(self, kind: str, url: str, directory: Path) -> None:
        self.kind, self.url, self.directory = kind, url, directory
        self.engine = engine_at(url, directory=directory, timeout_ms=10_000)
        self.clock = SimulatedClock(1_700_000_000_000)

    @property
    def prefix(self) -> str:
        """What stands before a table's name in the log."""
        return "public." if self.kind == "postgresql" else ""

    def execute(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", self._percent))

    @property
    def _percent(self) -> str:
        return "%" if self.kind == "sqlite" else "%%"

    def source(self, *, until_end: bool = True, **settings: Any) -> SqlSource:
        chosen = {"tables": ["*"], "every_ms": 1} | settings
        context = SourceContext("shop", self.directory, self.clock, _ignore, until_end=until_end)
        made = SqlSourceSettings.model_validate({"url": SecretStr(self.url), **chosen})
        return SqlSource(made, context)


def _ignore(progress: SourceReport) -> None:
    pass


async def one_round(
    source: SqlSource, positions: dict[str, str] | None = None
) -> tuple[list[tuple[str, dict[str, Any]]], dict[str, str]]:
    """What a source that ends after one round tells, and where it then stands."""
    found, stands = list[tuple[str, dict[str, Any]]](), dict(positions or {})
    async with aclosing(source.changes(stands)) as batches:
        async for batch in batches:
            found += changes_in(batch)
            stands |= batch.positions
    return found, stands


def changes_in(batch: ChangeBatch) -> list[tuple[str, dict[str, Any]]]:
    return [
        (OP_CODES[Operation(operation)], row)
        for changes in batch.tables
        for operation, row in zip(
            changes.operations.to_pylist(), changes.rows.to_pylist(), strict=True
        )
    ]


class Rounds:
    """A source that stays, asked round after round."""

    def __init__(self, source: SqlSource) -> None:
        self._batches = source.changes({})

    async def until(self, wanted: int) -> list[tuple[str, dict[str, Any]]]:
        """The changes up to that many, in as many rounds as it takes."""
        found: list[tuple[str, dict[str, Any]]] = []
        while len(found) < wanted:
            found += changes_in(await anext(self._batches))
        return found

    async def close(self) -> None:
        await self._batches.aclose()
