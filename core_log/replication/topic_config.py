"""All topic configuration keys of this broker, and their values for a topic."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, cast

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.replica_placement import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    check_throttled,
)
from headwater.core_log.replication.config_keys import (
    LONG_MAX,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Value,
    at_least,
    between,
    gzip_level,
    one_of,
    only,
    some_of,
)
from headwater.core_log.storage.log_config import LogConfig

BOOLEAN, STRING, INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
DAY_MS = 86_400_000
MIN_IN_SYNC = "min.insync.replicas"
SMALLEST_SEGMENT = 14  # bytes; Kafka's own minimum until 4.0, which requires 1 MiB

TOPIC_KEYS = (
    ConfigKey(
        "cleanup.policy",
        LIST,
        "delete",
        "log.cleanup.policy",
        "delete: old segments go by age and size. compact: the newest record of each key stays. "
        "Both together do both, and an empty list keeps everything.",
        some_of("compact", "delete"),
    ),
    ConfigKey(
        "compression.gzip.level",
        INT,
        "-1",
        "compression.gzip.level",
        "How hard the broker compresses for compression.type gzip, from 1 to 9; -1 is gzip's own.",
        gzip_level,
    ),
    ConfigKey(
        "compression.lz4.level",
        INT,
        "9",
        "compression.lz4.level",
        "How hard the broker compresses for compression.type lz4, from 1 to 17.",
        between(1, 17),
    ),
    ConfigKey(
        "compression.zstd.level",
        INT,
        "3",
        "compression.zstd.level",
        "How hard the broker compresses for compression.type zstd, from -131072 to 22.",
        between(-131072, 22),
    ),
    ConfigKey(
        "compression.type",
        STRING,
        "producer",
        "compression.type",
        "producer: batches are stored as their producer compressed them. With any other the broker "
        "compresses what comes otherwise anew, which takes much of its time.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    ConfigKey(
        "delete.retention.ms",
        LONG,
        str(DAY_MS),
        "log.cleaner.delete.retention.ms",
        "How long a tombstone of a compacted topic stays after compaction has first seen it.",
        at_least(0),
    ),
    ConfigKey(
        "file.delete.delay.ms",
        LONG,
        "60000",
        "log.segment.delete.delay.ms",
        "Without effect: a deleted segment stays open for those who are reading it, and nobody "
        "else can.",
        at_least(0),
    ),
    ConfigKey(
        "flush.messages",
        LONG,
        str(LONG_MAX),
        "log.flush.interval.messages",
        "Without effect: every batch is on disk before it is readable or acknowledged by acks=all.",
        at_least(1),
    ),
    ConfigKey(
        "flush.ms",
        LONG,
        str(LONG_MAX),
        "log.flush.interval.ms",
        "Without effect: every batch is on disk before it is readable or acknowledged by acks=all.",
        at_least(0),
        has_derived_default=True,
    ),
    ConfigKey(
        FOLLOWER_REPLICAS,
        LIST,
        "",
        None,
        "Replicas that fetch no faster than their brokers' follower.replication.throttled.rate "
        "until they are in sync: * for all, or a list of partition:broker.",
        check_throttled,
    ),
    ConfigKey(
        "index.interval.bytes",
        INT,
        "4096",
        "log.index.interval.bytes",
        "How many bytes of batches lie between two entries of the offset index.",
        at_least(0),
    ),
    ConfigKey(
        LEADER_REPLICAS,
        LIST,
        "",
        None,
        "Replicas that, while they lead, send no faster than their brokers' "
        "leader.replication.throttled.rate to others that are not in sync: * for all, or a list of "
        "partition:broker.",
        check_throttled,
    ),
    ConfigKey(
        "max.compaction.lag.ms",
        LONG,
        str(LONG_MAX),
        "log.cleaner.max.compaction.lag.ms",
        "A record is looked at by compaction after this time at the latest: its segment is closed "
        "for it.",
        at_least(1),
    ),
    ConfigKey(
        "max.message.bytes",
        INT,
        "1048588",
        "message.max.bytes",
        "Size of the largest batch accepted, as its producer compressed it.",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms",
        LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        LONG,
        str(LONG_MAX),
        "log.message.timestamp.before.max.ms",
        "How far a producer's timestamp may lie behind the broker's clock.",
        at_least(0),
    ),
    ConfigKey(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "log.message.timestamp.type",
        "Whether records carry their producer's time (CreateTime) or the broker's (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        "0.5",
        "log.cleaner.min.cleanable.ratio",
        "Compaction starts when this share of the log has not been compacted yet.",
        between(0, 1),
    ),
    ConfigKey(
        "min.compaction.lag.ms",
        LONG,
        "0",
        "log.cleaner.min.compaction.lag.ms",
        "A record stays untouched by compaction for at least this time.",
        at_least(0),
    ),
    ConfigKey(
        MIN_IN_SYNC,
        INT,
        "1",
        MIN_IN_SYNC,
        "acks=all is refused while fewer replicas than this are in sync. A cluster of three "
        "brokers sets the default to 2.",
        at_least(1),
    ),
    ConfigKey(
        "preallocate",
        BOOLEAN,
        "false",
        "log.preallocate",
        "Always false: files are extended in small steps and trimmed when they are rolled.",
        only(False, "whole segments are never preallocated here"),
    ),
    ConfigKey(
        "retention.bytes",
        LONG,
        "-1",
        "log.retention.bytes",
        "With cleanup.policy delete, the oldest segments go when a partition is larger than this; "
        "-1 for no limit.",
        at_least(-1),
    ),
    ConfigKey(
        "retention.ms",
        LONG,
        str(7 * DAY_MS),
        "log.retention.ms",
        "With cleanup.policy delete, segments go when their newest record is older than this; "
        "-1 for no limit.",
        at_least(-1),
        has_derived_default=True,
    ),
    ConfigKey(
        "segment.bytes",
        INT,
        str(1 << 30),
        "log.segment.bytes",
        "A segment file is closed, and a new one begun, at this size.",
        at_least(SMALLEST_SEGMENT),
    ),
    ConfigKey(
        "segment.index.bytes",
        INT,
        str(10 << 20),
        "log.index.size.max.bytes",
        "A segment is also closed when its offset index has reached this size.",
        at_least(4),
    ),
    ConfigKey(
        "segment.jitter.ms",
        LONG,
        "0",
        "log.roll.jitter.ms",
        "Spreads the closing of segments by age: up to this much earlier, by partition.",
        at_least(0),
        has_derived_default=True,
    ),
    ConfigKey(
        "segment.ms",
        LONG,
        str(7 * DAY_MS),
        "log.roll.ms",
        "A segment file is closed, and a new one begun, at this age.",
        at_least(1),
        has_derived_default=True,
    ),
    ConfigKey(
        "unclean.leader.election.enable",
        BOOLEAN,
        "false",
        "unclean.leader.election.enable",
        "Whether a replica that is not in sync may lead when none that is remains; what only the "
        "others held is then lost.",
    ),
)
KEYS = {key.name: key for key in TOPIC_KEYS}
_LAGS = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_OF_LOG = tuple(each.name for each in fields(LogConfig))


class ConfigSynonym(NamedTuple):
    """One of the sources of a value, the effective one first."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key as DescribeConfigs shows it."""

    key: ConfigKey
    value: str
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT_CONFIG


class TopicConfigs:
    """Returns the effective configuration of a topic from its own values, the cluster's defaults
    and this broker's."""

    def __init__(
        self, defaults: Mapping[str, str], *, of_cluster: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """Raises `ConfigError` if the defaults themselves are invalid."""
        self.defaults: dict[str, str] = {}
        self._of_cluster: Callable[[], Mapping[str, str]] = dict
        self.check(defaults)
        for name in defaults:
            if KEYS[name].broker_name is None:
                raise ConfigError(f"{name} has no default: set it on a topic")
        self.defaults, self._of_cluster = dict(defaults), of_cluster

    def check(self, config: Mapping[str, str]) -> None:
        """Raises `ConfigError` for a name or a value that this broker does not know."""
        for name, text in config.items():
            key_of(name).parse(text)
        least, most = (self._value(config, name) for name in _LAGS)
        if cast(int, least) > cast(int, most):
            raise ConfigError(f"{_LAGS[0]} ({least}) is larger than {_LAGS[1]} ({most})")

    def describe(self, config: Mapping[str, str], names: Iterable[str] = KEYS) -> list[ConfigEntry]:
        """Returns the keys among `names` that exist, with their values for a topic with this
        configuration."""
        return [self._entry(config, KEYS[name]) for name in sorted(set(names) & KEYS.keys())]

    def log_config(self, config: Mapping[str, str], *, partition: int = 0) -> LogConfig:
        """Returns the configuration of one partition for storage."""
        values: dict[str, object] = {
            name.replace(".", "_"): self._value(config, name) for name in KEYS
        }
        age_ms = cast(int, values["segment_ms"])
        jitter_ms = min(cast(int, values["segment_jitter_ms"]), age_ms)
        values["segment_ms"] = age_ms - (_spread(partition) % jitter_ms if jitter_ms else 0)
        values["cleanup_policy"] = frozenset(cast(tuple[str, ...], values["cleanup_policy"]))
        return LogConfig(**{name: values[name] for name in _OF_LOG})  # type: ignore[arg-type]

    def min_in_sync(self, config: Mapping[str, str]) -> int:
        return cast(int, self._value(config, MIN_IN_SYNC))

    def is_compacted(self, config: Mapping[str, str]) -> bool:
        return "compact" in cast(tuple[str, ...], self._value(config, "cleanup.policy"))

    def is_compacted_only(self, config: Mapping[str, str]) -> bool:
        return cast(tuple[str, ...], self._value(config, "cleanup.policy")) == ("compact",)

    def allows_unclean(self, config: Mapping[str, str]) -> bool:
        return bool(self._value(config, "unclean.leader.election.enable"))

    def text(self, config: Mapping[str, str], name: str) -> str:
        for values in (config, self._of_cluster(), self.defaults):
            if name in values:
                return values[name]
        return KEYS[name].default

    def _value(self, config: Mapping[str, str], name: str) -> Value:
        return KEYS[name].parse(self.text(config, name))

    def _entry(self, config: Mapping[str, str], key: ConfigKey) -> ConfigEntry:
        synonyms = [
            ConfigSynonym(name, key.normal(values[key.name]), source)
            for name, values, source in (
                (key.name, config, ConfigSource.DYNAMIC_TOPIC_CONFIG),
                (
                    key.broker_name,
                    self._of_cluster(),
                    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
                ),
                (key.broker_name, self.defaults, ConfigSource.STATIC_BROKER_CONFIG),
            )
            if name is not None and key.name in values
        ]
        if key.broker_name is not None and not key.has_derived_default:
            default = ConfigSynonym(key.broker_name, key.default, ConfigSource.DEFAULT_CONFIG)
            synonyms.append(default)
        return ConfigEntry(key, synonyms[0].value if synonyms else key.default, tuple(synonyms))


def key_of(name: str) -> ConfigKey:
    key = KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}")
    return key


def _spread(partition: int) -> int:
    """Returns a number that differs widely between neighbours, and is the same after every
    restart."""
    return partition * 2_654_435_761 & 0xFFFFFFFF
