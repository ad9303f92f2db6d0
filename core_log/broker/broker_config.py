"""This broker's own settings under the names Kafka's tools know them by."""

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.core_log.foundation.settings import BrokerSettings, explanations_of
from headwater.core_log.replication.config_keys import ConfigSource, ConfigType
from headwater.core_log.replication.topic_config import TOPIC_KEYS, ConfigSynonym, TopicConfigs

STRING, INT, BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.BOOLEAN

SETTING_NAMES: tuple[tuple[str, ConfigType, str], ...] = (
    ("auto.create.topics.enable", BOOLEAN, "auto_create_topics"),
    ("broker.id", INT, "node_id"),
    ("group.initial.rebalance.delay.ms", INT, "group_rebalance_delay_ms"),
    ("group.min.session.timeout.ms", INT, "group_session_timeout_ms_min"),
    ("log.dirs", STRING, "data"),
    ("max.connections", INT, "connections_max"),
    ("node.id", INT, "node_id"),
    ("num.partitions", INT, "default_partitions"),
    ("offsets.topic.num.partitions", INT, "internal_partitions"),
    ("socket.request.max.bytes", INT, "request_bytes_max"),
    ("transaction.state.log.num.partitions", INT, "internal_partitions"),
)
"""Kafka's name, its type, and the field of BrokerSettings that decides it."""

FIXED: Mapping[str, tuple[ConfigType, str]] = {
    "delete.topic.enable": (BOOLEAN, "true"),
    "default.replication.factor": (INT, "1"),
    "offsets.topic.replication.factor": (INT, "1"),
    "transaction.state.log.min.isr": (INT, "1"),
    "transaction.state.log.replication.factor": (INT, "1"),
}
"""What is always so here, and asked for by tools."""


@dataclass(frozen=True, slots=True)
class BrokerConfigEntry:
    """One setting as DescribeConfigs shows it; none can be changed while the broker runs."""

    name: str
    type: ConfigType
    value: str
    source: ConfigSource
    documentation: str

    @property
    def synonyms(self) -> tuple[ConfigSynonym, ...]:
        return (ConfigSynonym(self.name, self.value, self.source),)


def broker_entries(
    settings: BrokerSettings, configs: TopicConfigs, *, address: str
) -> list[BrokerConfigEntry]:
    """Everything by name: what was set, and for the rest what holds; `address` is listened on."""
    entries = [_own(settings, *each) for each in SETTING_NAMES]
    entries += [
        BrokerConfigEntry(
            name,
            ConfigType.LIST,
            f"PLAINTEXT://{address}",
            ConfigSource.STATIC_BROKER_CONFIG,
            "Where this broker listens.",
        )
        for name in ("advertised.listeners", "listeners")
    ]
    entries += [
        BrokerConfigEntry(name, kind, value, ConfigSource.DEFAULT_CONFIG, "Always so here.")
        for name, (kind, value) in FIXED.items()
    ]
    for key in TOPIC_KEYS:
        is_set = key.name in configs.defaults
        source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
        value = key.normal(configs.text({}, key.name))
        entries.append(
            BrokerConfigEntry(key.broker_name, key.type, value, source, key.documentation)
        )
    return sorted(entries, key=lambda each: each.name)


def _own(settings: BrokerSettings, name: str, kind: ConfigType, field: str) -> BrokerConfigEntry:
    value = getattr(settings, field)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_set = field in settings.model_fields_set
    source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
    return BrokerConfigEntry(name, kind, text, source, explanations_of(BrokerSettings)[field])
