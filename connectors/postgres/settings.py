"""YAML keys of `type: postgres` among the sources."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headwater.core_log.foundation.database_url import check_postgres_address
from headwater.core_log.foundation.schedule import WINDOW
from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternTexts,
    SizeBytes,
    Texts,
    YamlSettings,
    check_pattern,
    unless,
)
from headwater.core_log.foundation.units import parse_size_bytes


class SlotSettings(YamlSettings):
    """The replication slot, which makes the server keep changes until they are read."""

    name: str = Field("", pattern=r"^[a-z0-9_]{0,63}$", examples=["headwater_shop"])
    """`headwater_<pipeline>` if empty. Created if it is missing, and removed by `drop`."""
    failover: Literal["auto", "always", "never"] = "auto"
    """Whether standbys keep a copy of the slot, so that it survives a failover; `auto` uses this if
    the server can (17 or newer)."""
    max_retained_wal: Annotated[int | None, unless("unlimited", parse_size_bytes)] = Field(
        20 << 30, examples=["20GiB", "unlimited"]
    )
    """Limit of the write-ahead log that the slot may retain."""
    when_exceeded: Literal["warn", "stop", "drop"] = "warn"
    """Reaction beyond the limit: `stop` ends the source and leaves the slot; `drop` removes the
    slot to protect the database, and the position is lost."""


class PublicationSettings(YamlSettings):
    """The publication, which selects the tables that the server streams."""

    name: str = Field("", max_length=63, examples=["headwater_shop"])
    """`headwater_<pipeline>` if empty."""
    create: Literal["auto", "never"] = "auto"
    """`auto` creates it and keeps it in line with the tables of this file; if our role may not, the
    statement is printed for somebody who may. `never` uses it unchanged."""


class SnapshotSettings(YamlSettings):
    """The initial snapshot."""

    mode: Literal["initial", "never", "initial_only", "when_needed"] = "initial"
    """`initial`: read all rows once, then the stream; `never`: only the stream; `initial_only`:
    stop after the snapshot; `when_needed`: also whenever the position in the stream is lost."""
    parallel: int = Field(2, ge=1, le=64)
    """Number of parallel connections."""
    chunk_rows: int = Field(100_000, ge=1)
    """Approximate number of rows per chunk."""
    max_rows_per_second: int | None = Field(None, ge=1)
    """Rate limit of rows for all connections together; no limit if unset."""
    between: str = Field("", pattern=rf"^({WINDOW})?$", examples=["22:00-06:00"])
    """Hours in which rows are read, from-to in UTC, possibly over midnight; at any time if empty.
    Changes are streamed at all hours."""
    reread_max_rows: int | None = Field(None, ge=0, examples=[50_000_000])
    """Approximate number of rows up to which a table is read again automatically after a schema
    change. A larger one is quarantined until `headwater snapshot start PIPELINE/TABLE`. No limit if
    unset."""
    where: dict[Annotated[str, AfterValidator(check_pattern)], str] = Field(
        {}, examples=[{"public.orders": "created_at > now() - interval '1 year'"}]
    )
    """Tables by pattern to an SQL condition of the rows that the initial snapshot reads."""


class PostgresSettings(YamlSettings):
    """Streams every committed change of rows from PostgreSQL 14 or newer into the log exactly once,
    after an initial snapshot of the rows."""

    url: Annotated[SecretStr, AfterValidator(check_postgres_address)] = Field(
        examples=["${env:SHOP_PG_URL}"]
    )
    """Address of the database: `postgresql://user:password@host:port/name`, or any connection
    string of libpq. The role needs REPLICATION and SELECT on the tables."""
    tables: PatternTexts = Field(min_length=1, examples=[["public.*", "!public.tmp_*"]])
    """Tables to capture, as `schema.table`: globs, `/regex/`, `!` excludes."""
    slot: SlotSettings = SlotSettings()
    """The replication slot."""
    publication: PublicationSettings = PublicationSettings()
    """The publication."""
    snapshot: SnapshotSettings = SnapshotSettings()
    """The initial snapshot."""
    keys: dict[Annotated[str, AfterValidator(check_pattern)], Texts] = Field(
        {}, examples=[{"public.audit": ["at", "actor"]}]
    )
    """Table to the columns that identify its rows, if it has no primary key."""
    heartbeat_ms: DurationMs = 10_000
    """How often an idle source advances its slot, so that the server need not keep the writes of
    other databases and tables; 0 means never."""
    toast: Literal["fill", "placeholder"] = "fill"
    """Large values that an update did not change are not sent by the server. `fill` reads them from
    the table; `placeholder` writes Debezium's placeholder instead, and then the topic must not
    be compacted."""
    position_mismatch: Literal["stop", "resnapshot"] = "stop"
    """Reaction if the server no longer has the changes after our position: stop with an error, or
    read all rows again."""
    decimal: Literal["string", "precise", "double"] = "string"
    """Form of decimal numbers; Debezium's decimal.handling.mode."""
    time: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds",
        "nanoseconds",
    ] = "adaptive"  # fmt: skip
    """Form of times; Debezium's time.precision.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Form of bytes; Debezium's binary.handling.mode."""
    interval: Literal["numeric", "string"] = "numeric"
    """Form of intervals; Debezium's interval.handling.mode."""
    hstore: Literal["json", "map"] = "json"
    """Form of hstore: JSON text, or a map; Debezium's hstore.handling.mode. Targets get JSON in
    both cases."""
    unknown_types: Literal["text", "skip"] = "text"
    """Columns of types that Debezium does not support: as text, or left out."""
    has_transactions: bool = Field(False, alias="transactions")
    """Whether begins and ends of transactions become events in the topic `<pipeline>.transaction`;
    Debezium's provide.transaction.metadata."""
    has_messages: bool = Field(True, alias="messages")
    """Whether logical messages become events, in the topic `<pipeline>.message`."""
    origin: Literal["any", "none"] = "any"
    """`none` leaves out changes that the server itself received by replication (16 or newer)."""
    receive_bytes: SizeBytes = Field(2 << 20, ge=1 << 16)
    """How many bytes of the stream are decoded at a time. A larger value needs several times as
    much memory and saves little time."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """Longest wait for a connection."""

    @property
    def leaves_holes(self) -> bool:
        """Whether records can lack values that only older records of their key have."""
        return self.toast == "placeholder"

    @model_validator(mode="after")
    def check_that_rows_may_be_read_again(self) -> "PostgresSettings":
        if self.position_mismatch == "resnapshot" and self.snapshot.mode == "never":
            raise ValueError(
                "`position_mismatch: resnapshot` reads rows, which `snapshot.mode: never` rules out"
            )
        return self
