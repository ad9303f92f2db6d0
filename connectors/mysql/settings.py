"""YAML keys of `type: mysql` and `type: mariadb` among the sources."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headwater.core_log.foundation.database_url import NOT_SET
from headwater.core_log.foundation.schedule import WINDOW
from headwater.core_log.foundation.settings import (
    DurationMs,
    PatternTexts,
    Texts,
    YamlSettings,
    check_pattern,
)

SCHEMES = ("mysql://", "mariadb://")


def check_mysql_address(url: SecretStr) -> SecretStr:
    """Raises `ValueError` for text that is no address of MySQL."""
    address = url.get_secret_value()
    if NOT_SET not in address and not address.startswith(SCHEMES):
        raise ValueError("the address is not one of MySQL, such as mysql://user:password@host:port")
    return url


class MysqlTlsSettings(YamlSettings):
    """Encryption of the connections; the modes are those of MySQL's own clients."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    """`preferred` encrypts if the server can, `required` insists, `verify_ca` checks the server's
    certificate, and `verify_identity` also its host name; Debezium's database.ssl.mode."""
    ca_file: Path | None = None
    """PEM file with the certificate authorities; the system's own if left out."""
    certificate_file: Path | None = None
    """PEM file with the client certificate and its chain, if the server asks for one."""
    key_file: Path | None = None
    """PEM file with the key of that certificate, if it is not in the same file."""


class MysqlSnapshotSettings(YamlSettings):
    """The initial snapshot."""

    mode: Literal["initial", "never"] = "initial"
    """`initial`: read all rows once, beside the stream; `never`: only the stream, which stops where
    a table has to be read again."""
    parallel: int = Field(2, ge=1, le=64)
    """Number of parallel connections."""
    chunk_rows: int = Field(20_000, ge=1)
    """Number of rows per chunk."""
    max_rows_per_second: int | None = Field(None, ge=1)
    """Rate limit of rows for all connections together; no limit if unset."""
    between: str = Field("", pattern=rf"^({WINDOW})?$", examples=["22:00-06:00"])
    """Hours in which rows are read, from-to in UTC, possibly over midnight; at any time if empty.
    Changes are streamed at all hours."""
    locking: Literal["none", "minimal"] = "none"
    """`minimal` locks all tables against writes for a moment, in which the first snapshot begins:
    its rows are those of one position, and come before all changes. The user needs RELOAD, or LOCK
    TABLES on the captured tables. Debezium's snapshot.locking.mode."""
    lock_timeout_ms: DurationMs = Field(10_000, ge=1_000)
    """Longest wait for this lock, in whole seconds; writes wait behind it. Debezium's
    snapshot.lock.timeout.ms."""
    when_not_locked: Literal["stop", "continue"] = "stop"
    """Reaction if there is no lock in time, or no right to it: stop with an error, or `continue`
    with a snapshot without a lock."""
    reread_max_rows: int | None = Field(None, ge=0, examples=[50_000_000])
    """Approximate number of rows up to which a table is read again automatically after a schema
    change. A larger one is quarantined until `headwater snapshot start PIPELINE/TABLE`. No limit if
    unset."""


class MysqlSettings(YamlSettings):
    """Streams every committed change of rows from MySQL 8.0 or newer, or MariaDB 10.11 or newer,
    into the log exactly once, after an initial snapshot of the rows."""

    url: Annotated[SecretStr, AfterValidator(check_mysql_address)] = Field(
        examples=["${env:SHOP_MYSQL_URL}"]
    )
    """Address of the server: `mysql://user:password@host:port`. Several hosts are separated by
    commas, and the first that answers is used. The user needs SELECT, REPLICATION SLAVE and
    REPLICATION CLIENT."""
    tables: PatternTexts = Field(min_length=1, examples=[["shop.*", "!shop.tmp_*"]])
    """Tables to capture, as `database.table`: globs, `/regex/`, `!` excludes. Tables of gh-ost and
    pt-online-schema-change are left out unless a pattern names them exactly."""
    tls: MysqlTlsSettings = MysqlTlsSettings()
    """Encryption of the connections."""
    server_id: int | None = Field(None, ge=1, le=2**32 - 1)
    """Number of this reader among the replicas of the server, which must be unique; derived from
    the pipeline's name if unset. Debezium's database.server.id."""
    snapshot: MysqlSnapshotSettings = MysqlSnapshotSettings()
    """The initial snapshot."""
    keys: dict[Annotated[str, AfterValidator(check_pattern)], Texts] = Field(
        {}, examples=[{"shop.audit": ["at", "actor"]}]
    )
    """Table to the columns that identify its rows, if it has no primary key. A unique index of
    columns without nulls must exist for them."""
    heartbeat_ms: DurationMs = Field(10_000, ge=1_000)
    """How often an idle server is asked for a sign of life, and an idle source stores its
    position."""
    position_mismatch: Literal["stop", "resnapshot"] = "stop"
    """Reaction if the server no longer has the changes after our position: stop with an error, or
    read all rows again."""
    connect_timeout_ms: DurationMs = Field(10_000, ge=1)
    """Longest wait for a connection."""
    decimal: Literal["string", "precise", "double"] = "string"
    """Form of decimal numbers; Debezium's decimal.handling.mode."""
    time: Literal[
        "adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds",
        "nanoseconds",
    ] = "adaptive"  # fmt: skip
    """Form of times; Debezium's time.precision.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Form of bytes; Debezium's binary.handling.mode."""

    @model_validator(mode="after")
    def check_that_rows_may_be_read(self) -> "MysqlSettings":
        if self.position_mismatch == "resnapshot" and self.snapshot.mode == "never":
            raise ValueError(
                "`position_mismatch: resnapshot` reads rows, which `snapshot.mode: never` rules out"
            )
        if self.snapshot.locking != "none" and self.snapshot.between:
            raise ValueError(
                "`snapshot.between` makes rows wait, and `snapshot.locking` holds transactions open"
                " until all rows are read: leave one of them out"
            )
        return self
