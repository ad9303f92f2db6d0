"""ApiVersions (key 18), versions 0 to 4: the APIs of this broker, and the finalized features.

Deliberately not done: anything for ZooKeeper migration. APIs of KIP-848, share groups and telemetry
are not listed, and those of the quorum to other brokers only, once the listener knows them.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.dispatch import ONLY_NODES, RequestContext, handles
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from headwater.core_log.security.principal import CLUSTER

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ZERO_MINIMUM_FROM = 4
"""Older clients fail on a supported feature that begins at level 0 (KAFKA-17011)."""


@handles(ApiVersionsRequest)
async def handle_api_versions(
    broker: "Broker", request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    if context.peer is not None and context.peer.login is not None:
        context.peer.login.on_versions()
    hides_nodes = broker.security.guards_nodes and context.principal != CLUSTER
    keys = tuple(
        ApiVersion(
            api_key=served.api_key,
            min_version=served.advertised_from,
            max_version=served.versions[1],
        )
        for served in broker.served.values()
        if not (hides_nodes and served.api_key in ONLY_NODES)
    )
    supported = tuple(
        SupportedFeatureKey(name=name, min_version=low, max_version=high)
        for name, (low, high) in broker.supported_features.items()
        if low > 0 or context.api_version >= ZERO_MINIMUM_FROM
    )
    finalized = tuple(
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in broker.image.features.items()
    )
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=supported,
        finalized_features_epoch=broker.image.end_offset,
        finalized_features=finalized,
    )
