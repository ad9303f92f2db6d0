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
    """How the cluster is spoken to; openly and as nobody, unless it is said otherwise."""
    topics: Texts = Field(min_length=1)
    """Topics to read, by globs or /regular expressions/; `!` in front leaves topics out. Internal
    topics are never read."""
    format: Literal["debezium-json", "json", "raw"] = "debezium-json"
    """What values are. `debezium-json`: Debezium's events, with or without Connect's schemas;
    `json`: one object per record, its members as columns; `raw`: key, value, headers, partition,
    offset and timestamp as columns, whatever they hold."""
    key: Texts = ()
    """Columns of the key. With `json` a record then replaces the row of its key, and one without
    a value deletes it; with `debezium-json` they stand in for keys of records that have none."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin in partitions that are there when the pipeline first runs; those that come
    later are read from their first record."""
    decimal: Literal["string", "precise", "double"] = "string"
    """How `debezium-json` without schemas writes decimals: Debezium's decimal.handling.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """How `debezium-json` without schemas writes bytes: Debezium's binary.handling.mode."""
    refresh_every_ms: DurationMs = Field(60_000, ge=100)
    """How often new topics and partitions are looked for."""
    fetch_bytes: SizeBytes = Field(8 << 20, ge=1 << 10)
    """Most bytes, as they are stored, of one batch; a larger record comes alone."""
    retry_for_ms: DurationMs = 60_000
    """How long a request is repeated before the cluster counts as unavailable."""

    @property
    def wire(self) -> WireSettings:
        """Without schemas: those that stand beside values are taken off before they are read."""
        return WireSettings(value="debezium-json", decimal=self.decimal, binary=self.binary)

    @property
    def framed_wire(self) -> WireSettings:
        """Of what stood beside its schema, which says by its types how all else is written."""
        return WireSettings(value="debezium-json", decimal="precise", binary="bytes")
