"""YAML keys of `type: sql` among the sources."""

from typing import Annotated, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, SecretStr

from headwater.core_log.foundation.database_url import check_address
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.foundation.schedule import Schedule
from headwater.core_log.foundation.settings import DurationMs, PatternTexts, Texts


def check_key(text: str) -> str:
    Pattern(text)
    return text


TablePattern = Annotated[str, AfterValidator(check_key)]


class SqlSourceSettings(Schedule):
    """At least once: tables are asked for their newest rows on a schedule. What happened to a row
    between two questions is not seen, and a row that was being committed late can be read twice.
    """

    url: Annotated[SecretStr, AfterValidator(check_address)] = Field(examples=["${env:SHOP_URL}"])
    """Where the database is, as SQLAlchemy writes it: `postgresql://user:password@host/name`,
    `mysql://...`, `mariadb://...`, `sqlite:///file.db` (relative to the pipeline file)."""
    tables: PatternTexts = Field(min_length=1, examples=[["public.orders", "public.customers"]])
    """Tables to read, as `schema.table`, or by the name alone where the database has no schemas:
    globs, `/regex/`, `!` excludes."""
    namespaces: Texts = ()
    """Schemas (in MySQL: databases) to look in; the one that the connection comes to by default."""
    cursor: dict[TablePattern, Texts] = Field({}, examples=[{"orders": ["updated_at", "id"]}])
    """Table to the columns that only ever grow: rows beyond the last one read are new. The key is
    added to them, so that ties are told apart: a table without one needs `keys`. Rows in which the
    first is null are never read, and the others must not be null where they are not of the key.
    Tables that are not here are read whole each time, and compared with the time before."""
    keys: dict[TablePattern, Texts] = Field({}, examples=[{"audit": ["at", "actor"]}])
    """Table to the columns that tell its rows apart, where it has no primary key."""
    lag_ms: DurationMs = Field(0, examples=["30s"])
    """How far back from the newest row a cursor of times or days is read again, since a transaction
    may commit rows that are older than others'. Rows that have not changed do not come again. A
    cursor of another type than times, days and whole numbers is refused beside a lag."""
    lag_count: int = Field(0, ge=0, examples=[1000])
    """The same for a cursor of numbers."""
    every_ms: DurationMs = 10_000
    """How long to wait between two rounds of questions."""
    deletes: Literal["none", "compare"] = "none"
    """`compare`: all keys are read and compared with the time before. What was deleted while
    nothing ran is found because a start truncates the table and reads it whole."""
    compare_every_ms: DurationMs = 3_600_000
    """How often keys are compared of tables that have a cursor."""
    batch_rows: int = Field(50_000, ge=1)
    """Rows that are read at a time."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """How long to wait for a connection."""

    def cursor_of(self, *names: str) -> tuple[str, ...]:
        """Of a table under any of its names."""
        return _of(self.cursor, names)

    def key_of(self, *names: str) -> tuple[str, ...]:
        return _of(self.keys, names)


def _of(choices: dict[str, tuple[str, ...]], names: tuple[str, ...]) -> tuple[str, ...]:
    found = [
        columns
        for pattern, columns in choices.items()
        if any(Pattern(pattern).matches(name) for name in names)
    ]
    return found[-1] if found else ()


def lag_of(kind: pa.DataType) -> str:
    """The key of the setting; empty where no distance can be taken from a value."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "lag"
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return "lag_count"
    return ""


def given_lags(settings: SqlSourceSettings) -> tuple[str, ...]:
    lags = {"lag": settings.lag_ms, "lag_count": settings.lag_count}
    return tuple(name for name, value in lags.items() if value)


def check_lag(
    settings: SqlSourceSettings, cursor: str, kind: pa.DataType, *, declared: str, table: str
) -> None:
    """Raises where a lag is wanted and could never be kept to."""
    if (given := given_lags(settings)) and not lag_of(kind):
        raise SourceRejected(
            f"`{given[0]}` can have no effect on a cursor of this type",
            table=table,
            column=cursor,
            type=declared,
            hint="take a cursor of times, days or whole numbers, or read this table by a pipeline"
            " without a lag",
        )
