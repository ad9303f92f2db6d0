"""Quotas of clients, and the rates at which replicas are copied (KIP-73), for administrators."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.retry_policy import check
from headwater.core_log.client.topic_admin import TOPIC
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.replica_placement import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlteredEntity,
    QuotaAlteration,
    QuotaOperation,
)
from headwater.core_log.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
)
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.core_log.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.core_log.security.quotas import QuotaEntity, entity_of

BROKER = 4  # a resource whose configuration is requested
SET, UNSET = 0, 1  # operations of IncrementalAlterConfigs
DYNAMIC_BROKER, DYNAMIC_DEFAULT = 2, 3  # sources of a setting that running brokers take
RATES = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class ThrottledTopic(NamedTuple):
    """The replicas of a topic that are throttled: `*`, or partition:broker with commas between."""

    leaders: str
    followers: str


class BrokerRate(NamedTuple):
    """The bytes per second that a broker copies for throttled replicas, the lower of both ways."""

    bytes_per_s: int
    is_own: bool
    """Whether it is set for this broker; else it is the default of all."""


class ThrottleAdmin:
    """Administration of throttled replicas; every answer comes from the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def topics(self, names: Iterable[str]) -> Mapping[str, ThrottledTopic]:
        """Returns those of the topics that have throttled replicas."""
        wanted = [
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=REPLICAS
            )
            for name in names
        ]

        async def attempt() -> Mapping[str, ThrottledTopic]:
            answer = await self._cluster.ask_any(DescribeConfigsRequest(resources=wanted))
            found = dict[str, ThrottledTopic]()
            for each in answer.results:
                values = {one.name: one.value or "" for one in each.configs}
                lists = ThrottledTopic(*(values.get(key, "") for key in REPLICAS))
                if not each.error_code and any(lists):  # of a topic that is gone nothing
                    found[each.resource_name] = lists
            return found

        return await self._cluster.persist(attempt) if wanted else {}

    async def rates(self) -> Mapping[int, BrokerRate]:
        """Returns those of the live brokers that have a rate; each broker only knows its own."""

        async def attempt() -> Mapping[int, BrokerRate]:
            found = dict[int, BrokerRate]()
            for broker in (await self._cluster.metadata([])).brokers:
                node = self._cluster.node(broker.node_id)
                assert node is not None, "the metadata makes a broker known"
                resource = DescribeConfigsResource(
                    resource_type=BROKER,
                    resource_name=str(broker.node_id),
                    configuration_keys=RATES,
                )
                answer = (await node.ask(DescribeConfigsRequest(resources=[resource]))).results[0]
                check(answer.error_code, message=answer.error_message, broker=broker.node_id)
                rates = [
                    BrokerRate(int(each.value or 0), each.config_source == DYNAMIC_BROKER)
                    for each in answer.configs
                    if each.config_source in (DYNAMIC_BROKER, DYNAMIC_DEFAULT)
                ]
                if rates:
                    lowest = min(each.bytes_per_s for each in rates)
                    found[broker.node_id] = BrokerRate(lowest, any(e.is_own for e in rates))
            return found

        return await self._cluster.persist(attempt)

    async def set_rate(self, brokers: Iterable[int], bytes_per_s: int | None) -> None:
        """Sets the rate of brokers in both ways, or removes it; those that are away keep theirs."""
        changes = [_change(key, None if bytes_per_s is None else str(bytes_per_s)) for key in RATES]
        wanted = {*brokers}

        async def attempt() -> None:
            for broker in (await self._cluster.metadata([])).brokers:
                if broker.node_id in wanted:
                    node = self._cluster.node(broker.node_id)
                    assert node is not None, "the metadata makes a broker known"
                    resource = AlterConfigsResource(
                        resource_type=BROKER, resource_name=str(broker.node_id), configs=changes
                    )
                    answer = await node.ask(IncrementalAlterConfigsRequest(resources=[resource]))
                    [result] = answer.responses
                    check(result.error_code, message=result.error_message, broker=broker.node_id)

        await self._cluster.persist(attempt)

    async def set_topics(self, topics: Mapping[str, ThrottledTopic]) -> None:
        """Sets the throttled replicas of topics; an empty list is removed."""
        resources = [
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=[
                    _change(key, each or None) for key, each in zip(REPLICAS, lists, strict=True)
                ],
            )
            for name, lists in topics.items()
        ]

        async def attempt() -> None:
            request = IncrementalAlterConfigsRequest(resources=resources)
            for each in (await self._cluster.ask_any(request)).responses:
                check(each.error_code, message=each.error_message, topic=each.resource_name)

        if resources:
            await self._cluster.persist(attempt)


def _change(key: str, value: str | None) -> AlterableConfig:
    return AlterableConfig(name=key, config_operation=UNSET if value is None else SET, value=value)


class QuotaAdmin:
    """Administration of quotas; every answer comes from the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def all(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Returns values by entity and key, in order."""

        async def attempt() -> Mapping[QuotaEntity, Mapping[str, float]]:
            answer = await self._cluster.ask_any(DescribeClientQuotasRequest())
            check(answer.error_code, message=answer.error_message)
            found = {
                entity_of([(each.entity_type, each.entity_name) for each in entry.entity]): {
                    each.key: each.value for each in entry.values
                }
                for entry in answer.entries or ()
            }
            return {
                entity: dict(sorted(found[entity].items()))
                for entity in sorted(found, key=lambda each: [name or "" for name in each])
            }

        return await self._cluster.persist(attempt)

    async def change(self, entity: QuotaEntity, values: Mapping[str, float | None]) -> None:
        """Sets the values of some keys; None removes a key's quota. Raises `ConfigError` for what
        cannot be a quota."""
        entry = QuotaAlteration(
            entity=[
                AlteredEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts()
            ],
            ops=[
                QuotaOperation(key=key, value=value or 0.0, remove=value is None)
                for key, value in values.items()
            ],
        )

        async def attempt() -> None:
            answer = await self._cluster.ask_any(AlterClientQuotasRequest(entries=[entry]))
            [result] = answer.entries
            if result.error_code == ErrorCode.INVALID_REQUEST:
                raise ConfigError("the quota cannot be set", reason=result.error_message or "")
            check(result.error_code, message=result.error_message)

        await self._cluster.persist(attempt)
