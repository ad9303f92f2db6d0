"""YAML keys of `type: sql` among the sinks."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headwater.core_log.foundation.database_url import check_address
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.foundation.settings import DurationMs, SizeBytes, YamlSettings

Mode = Literal["mirror", "soft_delete", "append", "scd2"]
Deletes = Literal["hard", "soft", "ignore"]
SqlType = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_ ,()\[\]]*$")]


def check_pattern(text: str) -> str:
    Pattern(text)
    return text


class SqlTableSettings(YamlSettings):
    """How matching tables are kept; a key left out comes from an earlier matching pattern."""

    mode: Mode = "mirror"
    """`mirror`: the rows of the source now; `soft_delete`: the same, with deleted rows kept and
    marked; `append`: one row per change; `scd2`: one row per version, with its times."""
    deletes: Deletes | None = None
    """Effect of a delete in `mirror`: `hard` removes the row, `soft` is mode `soft_delete`,
    `ignore` leaves the row as it was. Default: the sink's own `deletes`."""
    types: dict[str, SqlType] = Field({}, examples=[{"total": "NUMERIC(30,6)"}])
    """Column to its type in the database, instead of the default type."""


class SqlSettings(YamlSettings):
    """Keeps tables of a database equal to the source's, through any SQLAlchemy driver."""

    follows_columns: ClassVar[bool] = True
    """The tables store the ids of their columns, as `assembly.follows_columns` requires."""

    url: Annotated[SecretStr, AfterValidator(check_address)] = Field(
        examples=["${env:REPORTING_URL}"]
    )
    """Address of the database in SQLAlchemy's form: `postgresql://user:password@host/name`,
    `mysql://...`, `mariadb://...`, `sqlite:///file.db` (relative to the pipeline file)."""
    namespace: str = Field("", examples=["{schema}", "reporting"])
    """Schema (in MySQL: database) of the tables, created if it is missing; `{schema}` is the
    source's schema. Empty: the connection's default."""
    table: str = Field("{table}", examples=["{schema}_{table}"], pattern=r"\{table\}")
    """Name of a table, made of `{schema}` and `{table}`."""
    deletes: Deletes = "hard"
    """Effect of a delete on tables in mode `mirror`, see `tables`."""
    tables: dict[Annotated[str, AfterValidator(check_pattern)], SqlTableSettings] = Field(
        {}, examples=[{"*": {"mode": "mirror"}, "public.orders": {"mode": "scd2"}}]
    )
    """Table patterns to how those tables are kept; if several match, the last one wins."""
    chunk_rows: int = Field(50_000, ge=1)
    """Rows of a table that are written in one step."""
    chunk_bytes: SizeBytes = Field(16 << 20, ge=1 << 10)
    """Bytes of rows that are buffered before they are written, over all tables."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """Timeout of a connection attempt."""

    @model_validator(mode="after")
    def _append_and_scd2_keep_deletes(self) -> Self:
        for pattern, table in self.tables.items():
            if table.deletes is not None and table.mode in ("append", "scd2"):
                raise ValueError(
                    f"tables[{pattern!r}]: mode {table.mode} records deletes; `deletes` is for "
                    "mirror"
                )
        return self

    @property
    def local_path(self) -> str:
        """Returns the path if it is on a disk of this machine, as far as the address shows; else
        empty."""
        scheme, _, path = self.url.get_secret_value().partition(":///")
        return path.partition("?")[0] if scheme.partition("+")[0] == "sqlite" else ""

    def of(self, table: str) -> SqlTableSettings:
        """Returns how `table` (`schema.table`) is kept."""
        chosen: dict[str, object] = {}
        for pattern, settings in self.tables.items():
            if Pattern(pattern).matches(table):
                chosen |= {name: getattr(settings, name) for name in settings.model_fields_set}
        found = SqlTableSettings.model_validate(chosen)
        deletes = found.deletes or self.deletes
        if found.mode == "mirror" and deletes == "soft":
            return found.model_copy(update={"mode": "soft_delete", "deletes": deletes})
        return found.model_copy(update={"deletes": deletes})
