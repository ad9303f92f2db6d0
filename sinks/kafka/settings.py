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
    """Exactly once for readers of committed records, where the cluster has transaction.version 2
    (Apache Kafka 4.0 and newer); at least once on older ones."""

    bootstrap: HostPorts = Field(min_length=1, examples=[["127.0.0.1:9092"]])
    """HOST:PORT of some brokers of the cluster."""
    security: SecuritySettings = SecuritySettings()
    """How the cluster is spoken to; openly and as nobody, unless it is said otherwise."""
    topic: str = "{pipeline}.{schema}.{table}"
    """Topic of a table; of tables without a namespace `{schema}.` is left out. Characters that no
    topic may have become underscores."""
    partitions: int = Field(1, ge=1)
    """Partitions of topics that are created. One that exists keeps those that it has."""
    config: dict[str, str] = Field({}, examples=[{"cleanup.policy": "compact"}])
    """Configuration of topics that are created, by Kafka's names, such as `cleanup.policy`."""
    value: ValueFormat = "debezium-json"
    """How keys and values are written."""
    has_schemas: bool = False
    """JSON only: every key and value carries Kafka Connect's schema of itself."""
    registry: HttpAddress = ""
    """Address of the schema registry that Avro values are written against."""
    decimal: Literal["string", "precise", "double"] = "string"
    """Debezium's decimal.handling.mode."""
    binary: Literal["bytes", "base64", "base64-url-safe", "hex"] = "bytes"
    """Debezium's binary.handling.mode."""
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    """Of the record batches."""
    batch_bytes: SizeBytes = Field(1 << 20, ge=1 << 10)
    """Largest record batch before compression, but for a record that is larger alone; the
    cluster's max.message.bytes must allow it."""
    transaction_timeout_ms: DurationMs = Field(60_000, ge=1_000)
    """How long one slice may take before the cluster gives it up; the cluster's
    transaction.max.timeout.ms must allow it."""
    retry_for_ms: DurationMs = 60_000
    """How long a request is repeated before the cluster counts as unavailable."""

    @property
    def wire(self) -> WireSettings:
        return WireSettings(
            value=self.value,
            has_schemas=self.has_schemas,
            decimal=self.decimal,
            binary=self.binary,
            registry=self.registry,
        )
