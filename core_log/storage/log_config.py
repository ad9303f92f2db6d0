"""Configuration of one partition: Kafka's topic configuration, with Kafka's defaults."""

from dataclasses import dataclass, replace

UNLIMITED = -1
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Fields have Kafka's names (`segment.bytes` is `segment_bytes`) and Kafka's meaning."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * HOUR_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * HOUR_MS
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """`delete`, `compact` or both."""
    delete_retention_ms: int = 24 * HOUR_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = (1 << 63) - 1
    message_timestamp_after_max_ms: int = HOUR_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def roll_ms(self) -> int:
        """How much later than its first record a segment takes records. Compaction looks at closed
        segments only."""
        if not self.is_compacted:
            return self.segment_ms
        return min(self.segment_ms, self.max_compaction_lag_ms)

    def without_expiry(self) -> "LogConfig":
        """Retention removes nothing but what lies below a log's start."""
        return replace(self, retention_ms=UNLIMITED, retention_bytes=UNLIMITED)

    @property
    def opens_batches(self) -> bool:
        """Whether a leader looks into batches, for keys or to compress them again."""
        return "compact" in self.cleanup_policy or self.compression_type != "producer"
