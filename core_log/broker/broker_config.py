"""This broker's own settings under Kafka's names, which Kafka's tools know."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from headwater.core_log.broker.administration import (
    ConfigResourceType,
    config_denied,
    unknown_broker,
    unknown_resource,
)
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.foundation.settings import BrokerSettings, explanations_of
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.config_keys import ConfigSource, ConfigType
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.replication.dynamic_configs import BROKER_KEYS
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.topic_config import ConfigSynonym, TopicConfigs
from headwater.core_log.security.acls import AclOperation

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


STRING, INT, BOOLEAN = ConfigType.STRING, ConfigType.INT, ConfigType.BOOLEAN

SETTING_NAMES: tuple[tuple[str, ConfigType, str], ...] = (
    ("auto.create.topics.enable", BOOLEAN, "auto_create_topics"),
    ("broker.id", INT, "node_id"),
    ("group.initial.rebalance.delay.ms", INT, "group_rebalance_delay_ms"),
    ("group.min.session.timeout.ms", INT, "group_session_timeout_ms_min"),
    ("log.dirs", STRING, "data"),
    ("broker.rack", STRING, "rack"),
    ("max.connections", INT, "connections_max"),
    ("node.id", INT, "node_id"),
    ("num.partitions", INT, "default_partitions"),
    ("offsets.topic.num.partitions", INT, "internal_partitions"),
    ("socket.request.max.bytes", INT, "request_bytes_max"),
    ("transaction.state.log.num.partitions", INT, "internal_partitions"),
)
"""Kafka's name, its type, and the field of BrokerSettings with the value."""

FIXED: Mapping[str, tuple[ConfigType, str]] = {
    "delete.topic.enable": (BOOLEAN, "true"),
}
"""Constant settings that tools ask for."""

REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


@dataclass(frozen=True, slots=True)
class BrokerConfigEntry:
    """One setting in DescribeConfigs."""

    name: str
    type: ConfigType
    value: str
    source: ConfigSource
    documentation: str
    others: tuple[ConfigSynonym, ...] = ()
    """The settings that would hold without this value."""
    is_read_only: bool = True
    """Whether it is read when the broker starts."""

    @property
    def synonyms(self) -> tuple[ConfigSynonym, ...]:
        return (ConfigSynonym(self.name, self.value, self.source), *self.others)


def dynamic_entries(image: MetadataImage, broker_id: int | None) -> list[BrokerConfigEntry]:
    """Returns what is set of a running broker's settings; None for the defaults of all brokers."""
    owners = {broker_id: ConfigSource.DYNAMIC_BROKER_CONFIG}
    owners[None] = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = list[BrokerConfigEntry]()
    for name, key in BROKER_KEYS.items():
        found = [
            ConfigSynonym(name, values[name], source)
            for owner, source in owners.items()
            if name in (values := image.broker_config.get(owner, {}))
        ]
        if found:
            first, others = found[0], tuple(found[1:])
            entries.append(
                BrokerConfigEntry(
                    *(name, key.type, first.value, first.source, key.documentation, others),
                    is_read_only=False,
                )
            )
    return entries


def broker_entries(
    settings: BrokerSettings, configs: TopicConfigs, *, address: str, replication_factor: int
) -> list[BrokerConfigEntry]:
    """Returns all settings by name: configured values and defaults; `address` is the listener's,
    and `replication_factor` that of a topic that is created without one."""
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
    entries += [
        BrokerConfigEntry(
            name,
            INT,
            str(replication_factor),
            ConfigSource.DEFAULT_CONFIG,
            "As many as there are live brokers, up to three.",
        )
        for name in REPLICATION_FACTORS
    ]
    entries += [
        BrokerConfigEntry(
            "transaction.state.log.min.isr",
            INT,
            str(configs.min_in_sync({})),
            ConfigSource.DEFAULT_CONFIG,
            "The same as min.insync.replicas.",
        )
    ]
    for each in configs.describe({}):
        key, name = each.key, each.key.broker_name
        if name is not None:
            entries.append(
                BrokerConfigEntry(name, key.type, each.value, each.source, key.documentation)
            )
    return sorted(entries, key=lambda each: each.name)


def _own(settings: BrokerSettings, name: str, kind: ConfigType, field: str) -> BrokerConfigEntry:
    value = getattr(settings, field)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_set = field in settings.model_fields_set
    source = ConfigSource.STATIC_BROKER_CONFIG if is_set else ConfigSource.DEFAULT_CONFIG
    return BrokerConfigEntry(name, kind, text, source, explanations_of(BrokerSettings)[field])


DONE = RequestRefusal(ErrorCode.NONE)


class RequestedConfig(Protocol):
    """One key of a request."""

    @property
    def name(self) -> str: ...


class ResourceChanges(Protocol):
    """A resource in a request, with its changes."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[RequestedConfig]: ...


R = TypeVar("R", bound=ResourceChanges)
A = TypeVar("A")


async def each_altered(
    broker: "Broker",
    resources: Sequence[R],
    alter: Callable[[R], Awaitable[RequestRefusal | None]],
    context: RequestContext,
    *,
    answer: Callable[..., A],
) -> list[A]:
    """Returns each resource's result; the refusal of one does not affect the others."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    answers = list[A]()
    for each in resources:
        outcome = (
            config_denied(
                broker, context, AclOperation.ALTER_CONFIGS, each.resource_type, each.resource_name
            )
            or refuse_change(broker, each, times)
            or await alter(each)
            or DONE
        )
        answers.append(
            answer(
                error_code=outcome.code,
                error_message=outcome.message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return answers


def broker_named(name: str) -> int | None:
    """Returns the broker of a name that was checked; None for all of them."""
    return int(name) if name else None


def refuse_change(
    broker: "Broker", resource: ResourceChanges, times: Counter[tuple[int, str]]
) -> RequestRefusal | None:
    """Returns the error of a resource that is invalid before its configuration is read."""
    names = [config.name for config in resource.configs]
    if times[resource.resource_type, resource.resource_name] > 1:
        return RequestRefusal(ErrorCode.INVALID_REQUEST, "Each resource may be named once only")
    if len(set(names)) < len(names):
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST, "Each configuration key may be named once only"
        )
    if resource.resource_type == ConfigResourceType.BROKER:
        return unknown_broker(broker, resource.resource_name)
    if resource.resource_type != ConfigResourceType.TOPIC:
        return unknown_resource(resource.resource_type)
    if not resource.resource_name:
        return RequestRefusal(
            ErrorCode.INVALID_REQUEST, "Defaults of all topics are broker settings"
        )
    return None
