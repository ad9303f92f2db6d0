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
    """The replication slot, with which the server keeps what we have not read yet."""

    name: str = Field("", pattern=r"^[a-z0-9_]{0,63}$", examples=["headwater_shop"])
    """`headwater_<pipeline>` when empty. Made when it is missing, and removed by `drop`."""
    failover: Literal["auto", "always", "never"] = "auto"
    """Whether standbys keep a copy of the slot, so that it outlives a failover; `auto` asks for
    it where the server can (17 or newer)."""
    max_retained_wal: Annotated[int | None, unless("unlimited", parse_size_bytes)] = Field(
        20 << 30, examples=["20GiB", "unlimited"]
    )
    """How much write-ahead log the slot may make the server keep."""
    when_exceeded: Literal["warn", "stop", "drop"] = "warn"
    """What happens beyond that: `stop` ends the source and leaves the slot, `drop` removes the
    slot for the database's sake, after which the position is lost."""


class PublicationSettings(YamlSettings):
    """Which tables the server publishes to us."""

    name: str = Field("", max_length=63, examples=["headwater_shop"])
    """`headwater_<pipeline>` when empty."""
    create: Literal["auto", "never"] = "auto"
    """`auto` makes it and keeps it to the tables of this file; where our role may not, the
    statement is printed for someone who may. `never` takes it as it is."""


class SnapshotSettings(YamlSettings):
    """How the rows that are there already are read."""

    mode: Literal["initial", "never", "initial_only", "when_needed"] = "initial"
    """`initial`: read them once, then the stream; `never`: only the stream; `initial_only`: stop
    after reading; `when_needed`: also whenever the place in the stream is lost."""
    parallel: int = Field(2, ge=1, le=64)
    """Connections that read side by side."""
    chunk_rows: int = Field(100_000, ge=1)
    """Rows, about, that are read at a time."""
    max_rows_per_second: int | None = Field(None, ge=1)
    """How fast rows are read at most, over all connections; as fast as it goes when unset."""
    between: str = Field("", pattern=rf"^({WINDOW})?$", examples=["22:00-06:00"])
    """Hours in which rows are read, from-to in UTC, over midnight as well; at any time when
    empty. Changes are streamed at all hours."""
    reread_max_rows: int | None = Field(None, ge=0, examples=[50_000_000])
    """How many rows, about, a table may have that is read again by itself after its form has
    changed. One with more is held until `headwater snapshot start PIPELINE/TABLE`. No limit when
    unset."""
    where: dict[Annotated[str, AfterValidator(check_pattern)], str] = Field(
        {}, examples=[{"public.orders": "created_at > now() - interval '1 year'"}]
    )
    """Tables by pattern to a condition in SQL that rows have to meet to be read at first."""


class PostgresSettings(YamlSettings):
    """Streams every committed change of rows from PostgreSQL 14 or newer, after reading the rows
    that are there, into the log exactly once."""

    url: Annotated[SecretStr, AfterValidator(check_postgres_address)] = Field(
        examples=["${env:SHOP_PG_URL}"]
    )
    """Where the database is: `postgresql://user:password@host:port/name`, or any connection string
    of libpq. The role needs REPLICATION and SELECT on the tables."""
    tables: PatternTexts = Field(min_length=1, examples=[["public.*", "!public.tmp_*"]])
    """Tables to capture, as `schema.table`: globs, `/regex/`, `!` excludes."""
    slot: SlotSettings = SlotSettings()
    """The replication slot."""
    publication: PublicationSettings = PublicationSettings()
    """The publication."""
    snapshot: SnapshotSettings = SnapshotSettings()
    """Whether and how rows that are there already are read."""
    keys: dict[Annotated[str, AfterValidator(check_pattern)], Texts] = Field(
        {}, examples=[{"public.audit": ["at", "actor"]}]
    )
    """Table to the columns that tell its rows apart, where it has no primary key."""
    heartbeat_ms: DurationMs = 10_000
    """How often an idle source moves its slot on, so that the server need not keep what other
    databases and tables write; 0 never."""
    toast: Literal["fill", "placeholder"] = "fill"
    """Large values that an update did not touch are not sent by the server. `fill` reads them from
    the table; `placeholder` writes Debezium's word in their place, which wants a topic that is
    never compacted."""
    position_mismatch: Literal["stop", "resnapshot"] = "stop"
    """What to do when the server no longer has what follows our position: say so and stop, or
    read all rows again."""
    decimal: Literal["string", "precise", "double"] = "string"
    """How numbers with a decimal point are written; Debezium's decimal.handling.mode."""
    time: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds",
        "nanoseconds",
    ] = "adaptive"  # fmt: skip
    """How times are written; Debezium's time.precision.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """How bytes are written; Debezium's binary.handling.mode."""
    interval: Literal["numeric", "string"] = "numeric"
    """How intervals are written; Debezium's interval.handling.mode."""
    hstore: Literal["json", "map"] = "json"
    """How hstore is written: as text that is JSON, or as a map; Debezium's hstore.handling.mode.
    Targets get JSON either way."""
    unknown_types: Literal["text", "skip"] = "text"
    """Columns of types that Debezium leaves out: as their text, or left out as well."""
    has_transactions: bool = Field(False, alias="transactions")
    """Whether beginnings and ends of transactions become events of their own, in the topic
    `<pipeline>.transaction`; Debezium's provide.transaction.metadata."""
    has_messages: bool = Field(True, alias="messages")
    """Whether logical messages become events, in the topic `<pipeline>.message`."""
    origin: Literal["any", "none"] = "any"
    """`none` leaves out what the server itself has from a replication (16 or newer)."""
    receive_bytes: SizeBytes = Field(2 << 20, ge=1 << 16)
    """How much of the stream is taken in before it becomes columns. More takes memory, several
    times as much, and little time off."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """How long to wait for a connection."""

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
