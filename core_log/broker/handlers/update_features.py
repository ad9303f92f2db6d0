"""UpdateFeatures (key 57), versions 0 to 2: finalizes other levels of the cluster's features.

A new controller finalizes the highest levels that it has, so that there is nothing to raise, and
a level is never lowered. Deliberately not done: the timeout.
"""

from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import decide_and_commit
from headwater.core_log.broker.dispatch import RequestContext, handles
from headwater.core_log.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headwater.core_log.replication.features import FeatureUpdate, UpgradeType

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

UPGRADE_TYPES_FROM = 1


@handles(UpdateFeaturesRequest, is_forwarded=True)
async def handle_update_features(
    broker: "Broker", request: UpdateFeaturesRequest, context: RequestContext
) -> UpdateFeaturesResponse:
    wanted = [update_of(each, context.api_version) for each in request.feature_updates]
    refused = await decide_and_commit(
        broker,
        lambda: broker.controller.features.update(wanted),
        validate_only=request.validate_only,
    )
    if refused is not None:
        return UpdateFeaturesResponse(error_code=refused.code, error_message=refused.message)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[UpdatableFeatureResult(feature=each.name, error_message=None) for each in wanted],
    )


def update_of(wanted: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = wanted.upgrade_type
    if version < UPGRADE_TYPES_FROM:
        kind = UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    return FeatureUpdate(wanted.feature, wanted.max_version_level, kind)
