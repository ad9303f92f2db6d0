"""DescribeConfigs (key 32), versions 1 to 4: the settings of topics and of this broker, and their
sources.

Cluster-wide defaults are min.insync.replicas, once there are three brokers, and the rates of
throttled replicas, which each broker may have as well. Deliberately not done: other settings that
could be changed on a running broker, log levels, groups and client metrics.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import (
    ConfigResourceType,
    broker_name_refused,
    config_denied,
    unknown_resource,
)
from headwater.core_log.broker.broker_config import (
    BrokerConfigEntry,
    broker_entries,
    dynamic_entries,
)
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headwater.core_log.replication.assignments import name_problem
from headwater.core_log.replication.config_keys import ConfigSource
from headwater.core_log.replication.decisions import RequestRefusal
from headwater.core_log.replication.topic_config import KEYS, ConfigEntry, ConfigSynonym
from headwater.core_log.security.acls import AclOperation

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

Described = list[DescribeConfigsResourceResult]


@handles(DescribeConfigsRequest)
async def handle_describe_configs(
    broker: "Broker", request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[answer(broker, context, each, request) for each in request.resources]
    )


def answer(
    broker: "Broker",
    context: RequestContext,
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResult:
    outcome = config_denied(
        broker,
        context,
        AclOperation.DESCRIBE_CONFIGS,
        resource.resource_type,
        resource.resource_name,
    ) or describe(broker, resource, request)
    refused = outcome if isinstance(outcome, RequestRefusal) else RequestRefusal(ErrorCode.NONE)
    return DescribeConfigsResult(
        error_code=refused.code,
        error_message=refused.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=() if isinstance(outcome, RequestRefusal) else outcome,
    )


def describe(
    broker: "Broker", resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> Described | RequestRefusal:
    name, wanted = resource.resource_name, resource.configuration_keys
    if resource.resource_type == ConfigResourceType.TOPIC:
        problem = name_problem(name)
        if problem is not None:
            return RequestRefusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = broker.image.topic(name)
        if topic is None:
            return RequestRefusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist"
            )
        entries = broker.configs.describe(topic.config, wanted or KEYS)
        return [topic_line(each, request) for each in entries]
    if resource.resource_type == ConfigResourceType.BROKER:
        refused = broker_name_refused(broker, name)
        if refused is not None:
            return refused
        if not name:
            of_cluster = broker.image.cluster_config
            entries = broker.configs.describe({}, of_cluster.keys() & {*(wanted or of_cluster)})
            rates = choose_entries(dynamic_entries(broker.image, None), wanted)
            return [
                *(topic_line(replace(e, synonyms=e.synonyms[:1]), request) for e in entries),
                *(broker_line(each, request) for each in rates),
            ]
        own = broker.image.brokers[broker.node_id]
        settings = broker_entries(
            broker.settings,
            broker.configs,
            address=f"{own.host}:{own.port}",
            replication_factor=broker.controller.default_replication_factor,
        )
        settings += dynamic_entries(broker.image, broker.node_id)
        return [broker_line(each, request) for each in choose_entries(settings, wanted)]
    return unknown_resource(resource.resource_type)


def choose_entries(
    entries: Iterable[BrokerConfigEntry], wanted: Collection[str] | None
) -> Iterable[BrokerConfigEntry]:
    return (each for each in entries if not wanted or each.name in wanted)


def topic_line(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        config_source=entry.source,
        synonyms=synonyms(entry.synonyms) if request.include_synonyms else (),
        config_type=entry.key.type,
        documentation=entry.key.documentation if request.include_documentation else None,
    )


def broker_line(
    entry: BrokerConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        synonyms=synonyms(entry.synonyms) if request.include_synonyms else (),
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def synonyms(known: Iterable[ConfigSynonym]) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=each.name, value=each.value, source=ConfigSource(each.source))
        for each in known
    ]
