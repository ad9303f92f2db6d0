"""The features of the cluster, each finalized at a level that all brokers have."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import FeatureLevelRecord, MetadataRecord

FEATURES: Mapping[str, int] = {"transaction.version": 2}
"""The features of this version of the broker, with their highest levels."""


class UpgradeType(IntEnum):
    """Directions of a change, with Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The level that a client asks for."""

    name: str
    level: int
    kind: int


class Features:
    """Decides about features. Pure, like the rest of the controller."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def finalize(self) -> Decision[None]:
        """Finalizes this version's features; a finalized level is never lowered."""
        final = self._image.features
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name, level)
            for name, level in FEATURES.items()
            if final.get(name, -1) < level
        ]
        return Decision(None, records)

    def update(self, wanted: Sequence[FeatureUpdate]) -> Decision[RequestRefusal | None]:
        """Changes all of them or, if one is refused, none."""
        records: list[MetadataRecord] = []
        for each in wanted:
            problem = self._problem_of(each)
            if problem is not None:
                message = f"Invalid update version {each.level} for feature {each.name}. {problem}"
                return Decision(RequestRefusal(ErrorCode.INVALID_UPDATE_VERSION, message))
            if each.level > self._image.features.get(each.name, 0):
                records.append(FeatureLevelRecord(each.name, each.level))
        return Decision(None, records)

    def _problem_of(self, wanted: FeatureUpdate) -> str | None:
        now, highest = self._image.features.get(wanted.name, 0), FEATURES.get(wanted.name)
        if wanted.kind not in set(UpgradeType):
            return "The controller does not support the given upgrade type."
        if wanted.level < 0:
            return "A feature version cannot be less than 0."
        if highest is None:
            return "The controller does not support this feature."
        if wanted.level > highest:
            return f"The controller only supports versions 0-{highest}"
        if wanted.level < now:
            return "A level is never lowered here."
        if wanted.level > now and wanted.kind != UpgradeType.UPGRADE:
            return "Can't downgrade to a newer version."
        return None
