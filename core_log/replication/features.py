"""The features of the cluster, each finalized at a level that all brokers have."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import Decision, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import (
    FIRST_VERSION,
    METADATA_FEATURE,
    METADATA_VERSION,
    BrokerRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

FEATURES: Mapping[str, int] = {"transaction.version": 2}
"""The features that clients may ask for, with their highest levels."""
SUPPORTED: Mapping[str, int] = {**FEATURES, METADATA_FEATURE: METADATA_VERSION}
"""All features of this version of the broker, with their highest levels."""


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

    def finalize(self, node_id: int, levels: Mapping[str, int] = SUPPORTED) -> Decision[None]:
        """Finalizes the features of this broker; a finalized level is never lowered. The version of
        the metadata is among them where no other broker is to read it."""
        is_alone = self._image.brokers.keys() <= {node_id}
        return self._raise(
            {name: each for name, each in levels.items() if is_alone or name != METADATA_FEATURE}
        )

    def raise_metadata_version(self, version: int) -> Decision[None]:
        """From now on records are written that a broker of this version, or a newer one, reads."""
        return self._raise({METADATA_FEATURE: version})

    def _raise(self, levels: Mapping[str, int]) -> Decision[None]:
        final = self._image.features
        records: list[MetadataRecord] = [
            FeatureLevelRecord(name, level)
            for name, level in levels.items()
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
        if wanted.name == METADATA_FEATURE:
            return "The level rises by itself once all brokers support the next version."
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


class MetadataVersions:
    """The version of the metadata that each registered broker reads, as the active controller has
    heard. Without clock and network."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[int, int]] = {}

    def on_heard(self, broker_id: int, broker_epoch: int, levels: Mapping[str, int]) -> None:
        """`levels` are the highest of the features that the broker supports; one that names no
        version of the metadata reads the first."""
        version = levels.get(METADATA_FEATURE, FIRST_VERSION)
        self._heard[broker_id] = (broker_epoch, version)

    def list_unknown(self, brokers: Mapping[int, BrokerRecord]) -> list[int]:
        """Returns the brokers of which nothing has been heard since they registered."""
        return [
            broker_id
            for broker_id, each in sorted(brokers.items())
            if self._heard.get(broker_id, (-1, 0))[0] != each.broker_epoch
        ]

    def find_common(self, brokers: Mapping[int, BrokerRecord]) -> int | None:
        """Returns the newest version that all brokers read; None while that of one is unknown. One
        that is away may come back as old as it was."""
        if not brokers or self.list_unknown(brokers):
            return None
        return min(self._heard[each][1] for each in brokers)
