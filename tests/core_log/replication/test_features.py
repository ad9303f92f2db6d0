"""What older brokers cannot read is written once all brokers of the cluster read it."""

import pytest

from headwater.core_log.replication.features import SUPPORTED, MetadataVersions
from headwater.core_log.replication.metadata_records import (
    KINDS,
    METADATA_FEATURE,
    METADATA_VERSION,
    ClientQuotaRecord,
    ClusterConfigRecord,
    MetadataRecord,
    metadata_version_of,
    record_versions,
)
from tests.core_log.replication.controller_in_memory import Scene

KEY = "min.insync.replicas"
OF_FIRST_VERSION = {
    "topic": 2,
    "topic-replicas": 1,
    "topic-removal": 1,
    "partition": 3,
    "partition-change": 3,
    "topic-config": 1,
    "broker": 2,
    "broker-removal": 1,
    "broker-fence": 1,
    "producer-ids": 1,
    "feature-level": 1,
    "acl": 1,
    "acl-removal": 1,
    "scram": 1,
    "scram-removal": 1,
}
"""Kinds that every broker reads, with their newest versions. Nothing is added here: what is newer
comes with another version of the metadata."""


class OlderScene(Scene):
    """A cluster with brokers that do not say which version of the metadata they read."""

    def __init__(self, brokers: int) -> None:
        super().__init__(brokers)
        del self.image.features[METADATA_FEATURE]


def test_every_newer_record_has_a_version_of_the_metadata() -> None:
    for kind in KINDS:
        for version in record_versions(kind):
            is_first = version <= OF_FIRST_VERSION.get(kind, 0)
            came_with = metadata_version_of(kind, version)
            assert (came_with == 1) is is_first, (kind, version)
            assert came_with <= METADATA_VERSION, (kind, version)


@pytest.mark.parametrize(
    "record",
    [ClusterConfigRecord(KEY, "2"), ClientQuotaRecord("a", None, None, "producer_byte_rate", 1.0)],
)
def test_an_older_broker_is_spared_a_newer_record(record: MetadataRecord) -> None:
    assert not OlderScene(brokers=3).image.may_have([record])
    assert Scene(brokers=3).image.may_have([record])


def test_two_disks_are_asked_for_once_all_brokers_know_defaults_of_the_cluster() -> None:
    scene = OlderScene(brokers=3)
    decision = scene.controller.cluster_config.ask_for_two_disks()
    assert (decision.answer, list(decision.records)) == (False, [])

    scene.commit(scene.controller.features.raise_metadata_version(2))

    assert scene.commit(scene.controller.cluster_config.ask_for_two_disks())
    assert scene.image.cluster_config == {KEY: "2"}


def test_a_version_counts_for_one_registration_of_a_broker() -> None:
    scene, versions = Scene(brokers=2), MetadataVersions()
    brokers = scene.image.brokers
    assert versions.find_common({}) is None
    versions.on_heard(1, brokers[1].broker_epoch, SUPPORTED)
    assert (versions.list_unknown(brokers), versions.find_common(brokers)) == ([2], None)

    versions.on_heard(2, brokers[2].broker_epoch, {"transaction.version": 2})
    assert (versions.list_unknown(brokers), versions.find_common(brokers)) == ([], 1)

    scene.register(2)
    assert (versions.list_unknown(brokers), versions.find_common(brokers)) == ([2], None)

    versions.on_heard(2, brokers[2].broker_epoch, {METADATA_FEATURE: 9})
    assert versions.find_common(brokers) == METADATA_VERSION


def test_a_broker_alone_writes_the_newest_version_and_two_wait_for_each_other() -> None:
    alone, beside = OlderScene(brokers=1), OlderScene(brokers=2)

    alone.commit(alone.controller.features.finalize(1))
    beside.commit(beside.controller.features.finalize(1))

    assert alone.image.features == SUPPORTED
    assert METADATA_FEATURE not in beside.image.features
