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
    """How some tables are kept; what is left out is taken from a pattern further up."""

    mode: Mode = "mirror"
    """`mirror`: the table as the source has it; `soft_delete`: the same, but deleted rows stay and
    say since when; `append`: a row per change; `scd2`: a row per version, with its time."""
    deletes: Deletes | None = None
    """What a delete does in `mirror`: `hard` removes the row, `soft` is mode `soft_delete`,
    `ignore` leaves the row as it was. The sink's own `deletes` where it is left out."""
    types: dict[str, SqlType] = Field({}, examples=[{"total": "NUMERIC(30,6)"}])
    """Column to the type it gets in the database, instead of the one the type table gives."""


class SqlSettings(YamlSettings):
    """Keeps tables of a database equal to the source's, through any driver of SQLAlchemy."""

    follows_columns: ClassVar[bool] = True
    """Its tables know the ids of their columns, which `assembly.follows_columns` asks."""

    url: Annotated[SecretStr, AfterValidator(check_address)] = Field(
        examples=["${env:REPORTING_URL}"]
    )
    """Where the database is, as SQLAlchemy writes it: `postgresql://user:password@host/name`,
    `mysql://...`, `mariadb://...`, `sqlite:///file.db` (relative to the pipeline file)."""
    namespace: str = Field("", examples=["{schema}", "reporting"])
    """Schema (in MySQL: database) of the tables, made when it is missing; `{schema}` is the one at
    the source. Empty: the one that the connection comes to."""
    table: str = Field("{table}", examples=["{schema}_{table}"], pattern=r"\{table\}")
    """How a table is called, made of `{schema}` and `{table}`."""
    deletes: Deletes = "hard"
    """What a delete does to tables in mode `mirror`, see `tables`."""
    tables: dict[Annotated[str, AfterValidator(check_pattern)], SqlTableSettings] = Field(
        {}, examples=[{"*": {"mode": "mirror"}, "public.orders": {"mode": "scd2"}}]
    )
    """Tables by pattern to how they are kept; of several that match, the last counts."""
    chunk_rows: int = Field(50_000, ge=1)
    """Rows of a table that are written in one step."""
    chunk_bytes: SizeBytes = Field(16 << 20, ge=1 << 10)
    """Bytes of rows that are gathered before they are written, over all tables."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """How long to wait for a connection."""

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
        """Where it is on a disk of this machine, as far as the address says; empty where not."""
        scheme, _, path = self.url.get_secret_value().partition(":///")
        return path.partition("?")[0] if scheme.partition("+")[0] == "sqlite" else ""

    def of(self, table: str) -> SqlTableSettings:
        """How `table`, as `schema.table`, is kept."""
        chosen: dict[str, object] = {}
        for pattern, settings in self.tables.items():
            if Pattern(pattern).matches(table):
                chosen |= {name: getattr(settings, name) for name in settings.model_fields_set}
        found = SqlTableSettings.model_validate(chosen)
        deletes = found.deletes or self.deletes
        if found.mode == "mirror" and deletes == "soft":
            return found.model_copy(update={"mode": "soft_delete", "deletes": deletes})
        return found.model_copy(update={"deletes": deletes})
