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
    """At least once: tables are polled for their newest rows on a schedule. Changes of a row
    between two polls are not seen, and a row that was committed late can be read twice."""

    url: Annotated[SecretStr, AfterValidator(check_address)] = Field(examples=["${env:SHOP_URL}"])
    """Address of the database in SQLAlchemy's form: `postgresql://user:password@host/name`,
    `mysql://...`, `mariadb://...`, `sqlite:///file.db` (relative to the pipeline file)."""
    tables: PatternTexts = Field(min_length=1, examples=[["public.orders", "public.customers"]])
    """Tables to read, as `schema.table`, or by the name alone if the database has no schemas:
    globs, `/regex/`, `!` excludes."""
    namespaces: Texts = ()
    """Schemas (in MySQL: databases) to search; by default the connection's default schema."""
    cursor: dict[TablePattern, Texts] = Field({}, examples=[{"orders": ["updated_at", "id"]}])
    """Table to columns that only grow: rows after the last one read are new. The key is added to
    them to order equal values: a table without a key needs `keys`. Rows whose first cursor
    column is null are never read. The others must not be null unless they are of the key. Tables
    that are not listed are read completely each time, and compared with the last time."""
    keys: dict[TablePattern, Texts] = Field({}, examples=[{"audit": ["at", "actor"]}])
    """Table to the columns that identify its rows, if it has no primary key."""
    lag_ms: DurationMs = Field(0, examples=["30s"])
    """How far back from the newest row a cursor of times or dates is read again, since a
    transaction may commit older rows later. Unchanged rows are not emitted again. With a lag,
    only cursors of times, dates and whole numbers are allowed."""
    lag_count: int = Field(0, ge=0, examples=[1000])
    """The same for a cursor of numbers."""
    every_ms: DurationMs = 10_000
    """Pause between two polls."""
    deletes: Literal["none", "compare"] = "none"
    """`compare`: all keys are read and compared with the last time. Deletes while the pipeline was
    stopped are found, because a start truncates the table and reads it completely."""
    compare_every_ms: DurationMs = 3_600_000
    """How often keys of tables with a cursor are compared."""
    batch_rows: int = Field(50_000, ge=1)
    """Rows per query."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """Longest wait for a connection."""

    def cursor_of(self, *names: str) -> tuple[str, ...]:
        """Returns the cursor of a table under any of its names."""
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
    """Returns the name of the lag's setting; empty if nothing can be subtracted from a value."""
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
    """Raises if a lag is set that can have no effect."""
    if (given := given_lags(settings)) and not lag_of(kind):
        raise SourceRejected(
            f"`{given[0]}` can have no effect on a cursor of this type",
            table=table,
            column=cursor,
            type=declared,
            hint="choose a cursor of times, dates or whole numbers, or read this table"
            " by a pipeline without a lag",
        )
