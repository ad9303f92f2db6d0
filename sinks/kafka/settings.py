"""YAML keys of `type: kafka`, as a sink."""

from typing import Literal

from pydantic import Field

from headwater.core_log.foundation.settings import (
    DurationMs,
    HostPorts,
    HttpAddress,
    SecuritySettings,
    SizeBytes,
    YamlSettings,
)
from headwater.core_log.rows.settings import ValueFormat, WireSettings


class KafkaSinkSettings(YamlSettings):
    """Exactly once for readers of committed records if the cluster has transaction.version 2
    (Apache Kafka 4.0 and newer); at least once on older clusters."""

    bootstrap: HostPorts = Field(min_length=1, examples=[["127.0.0.1:9092"]])
    """HOST:PORT of some brokers of the cluster."""
    security: SecuritySettings = SecuritySettings()
    """TLS and authentication. Default: plain text without authentication."""
    topic: str = "{pipeline}.{schema}.{table}"
    """Topic of a table; for tables without a namespace `{schema}.` is left out. Characters that a
    topic name cannot have become underscores."""
    partitions: int = Field(1, ge=1)
    """Partitions of topics that the sink creates. An existing topic keeps its own number."""
    config: dict[str, str] = Field({}, examples=[{"cleanup.policy": "compact"}])
    """Configuration of topics that the sink creates, by Kafka's names, such as `cleanup.policy`."""
    value: ValueFormat = "debezium-json"
    """Format of keys and values."""
    has_schemas: bool = False
    """JSON only: every key and value contains its Kafka Connect schema."""
    registry: HttpAddress = ""
    """Address of the schema registry for Avro values."""
    decimal: Literal["string", "precise", "double"] = "string"
    """Debezium's decimal.handling.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Debezium's binary.handling.mode."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    """Compression of record batches."""
    batch_bytes: SizeBytes = Field(1 << 20, ge=1 << 10)
    """Largest record batch before compression, except for a single larger record; the cluster's
    max.message.bytes must allow it."""
    transaction_timeout_ms: DurationMs = Field(60_000, ge=1_000)
    """Longest duration of one slice before the cluster aborts it; the cluster's
    transaction.max.timeout.ms must allow it."""
    retry_for_ms: DurationMs = 60_000
    """How long a request is retried before the cluster counts as unavailable."""

    @property
    def wire(self) -> WireSettings:
        return WireSettings(
            value=self.value,
            has_schemas=self.has_schemas,
            decimal=self.decimal,
            binary=self.binary,
            registry=self.registry,
        )
