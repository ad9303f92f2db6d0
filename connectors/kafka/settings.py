"""YAML keys of `type: kafka`, as a source."""

from typing import Literal

from pydantic import Field

from headwater.core_log.foundation.settings import (
    DurationMs,
    HostPorts,
    SecuritySettings,
    SizeBytes,
    Texts,
    YamlSettings,
)
from headwater.core_log.rows.settings import WireSettings


class KafkaSourceSettings(YamlSettings):
    """Exactly once: the position is the offset of every partition."""

    bootstrap: HostPorts = Field(min_length=1, examples=[["127.0.0.1:9092"]])
    """HOST:PORT of some brokers of the cluster."""
    security: SecuritySettings = SecuritySettings()
    """Encryption and authentication of connections; none by default."""
    topics: Texts = Field(min_length=1)
    """Topics to read, by globs or /regular expressions/; a leading `!` excludes topics. Internal
    topics are never read. Two topics of one table (`a.public.orders` and `b.public.orders` of
    Debezium) are refused."""
    format: Literal["debezium-json", "json", "raw"] = "debezium-json"
    """Format of the values. `debezium-json`: Debezium's events, with or without Connect's schemas;
    `json`: one object per record, its fields as columns; `raw`: key, value, headers, partition,
    offset and timestamp as columns, with any content."""
    key: Texts = ()
    """Columns of the key. With `json` a record then replaces the row of its key, and one without a
    value deletes it; with `debezium-json` they replace the keys of records without a key."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin in partitions that exist at the first run; later partitions are read from
    their first record."""
    decimal: Literal["string", "precise", "double"] = "string"
    """How `debezium-json` without schemas writes decimals: Debezium's decimal.handling.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """How `debezium-json` without schemas writes bytes: Debezium's binary.handling.mode."""
    refresh_every_ms: DurationMs = Field(60_000, ge=100)
    """How often to look for new topics and partitions."""
    fetch_bytes: SizeBytes = Field(8 << 20, ge=1 << 10)
    """Largest stored size of one batch in bytes; a larger record is read alone."""
    retry_for_ms: DurationMs = 60_000
    """How long a request is repeated before the cluster counts as unavailable."""

    @property
    def wire(self) -> WireSettings:
        """Settings without schemas: the schemas of values are removed before they are read."""
        return WireSettings(value="debezium-json", decimal=self.decimal, binary=self.binary)

    @property
    def framed_wire(self) -> WireSettings:
        """Settings for values with a schema, whose types define all other choices."""
        return WireSettings(value="debezium-json", decimal="precise", binary="bytes")
