"""Settings that brokers take while they run are of one broker or of all, and kept in the
metadata."""

import pytest

from headwater.core_log.model.replica_placement import FOLLOWER_RATE, LEADER_RATE
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.config_keys import ConfigSource
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    NewTopic,
    RequestRefusal,
)
from headwater.core_log.replication.leader import InSyncProposal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import decode_record, encode_record
from headwater.core_log.replication.topic_config import MIN_IN_SYNC
from tests.core_log.replication.controller_in_memory import Scene

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
ALL_BROKERS = None
KEY = "min.insync.replicas"


class ThrottledScene(Scene):
    def alter(
        self,
        broker_id: int | None,
        *changes: tuple[str, str | None],
        operation: ConfigOperation | None = None,
    ) -> RequestRefusal | None:
        """Without an operation a value of None removes the setting."""
        wanted = []
        for name, value in changes:
            usual = DELETE if value is None else SET
            wanted.append(ConfigChange(name, usual if operation is None else operation, value))
        return self.commit(self.controller.broker_configs.alter(broker_id, wanted))

    def replace(self, broker_id: int | None, **values: str | None) -> RequestRefusal | None:
        wanted = {name.replace("_", "."): value for name, value in values.items()}
        return self.commit(self.controller.broker_configs.replace(broker_id, wanted))

    def rates(self, broker_id: int) -> tuple[str | None, str | None]:
        image = self.image
        leader, follower = (
            image.broker_setting(broker_id, each) for each in (LEADER_RATE, FOLLOWER_RATE)
        )
        return leader, follower


def test_a_broker_has_its_own_rate_or_else_that_of_all() -> None:
    scene = ThrottledScene(brokers=2)

    scene.alter(ALL_BROKERS, (LEADER_RATE, "10"), (FOLLOWER_RATE, " 20 "))
    scene.alter(1, (LEADER_RATE, "30"))

    assert (scene.rates(1), scene.rates(2)) == (("30", "20"), ("10", "20"))
    scene.alter(1, (LEADER_RATE, None))
    assert scene.rates(1) == ("10", "20")
    scene.alter(ALL_BROKERS, (LEADER_RATE, None), (FOLLOWER_RATE, None))
    assert scene.rates(1) == scene.rates(2) == (None, None)
    assert scene.image.broker_config == {}


def test_rates_are_in_a_snapshot_and_leave_with_their_broker() -> None:
    scene = ThrottledScene(brokers=3)
    scene.alter(ALL_BROKERS, (LEADER_RATE, "10"))
    scene.alter(3, (FOLLOWER_RATE, "20"))

    records = [decode_record(encode_record(each)) for each in scene.image.records()]
    restored = MetadataImage()
    restored.replace(records, 1)
    scene.commit(scene.controller.fence_broker(3))
    scene.commit(scene.controller.remove_broker(3))

    assert restored.broker_config == {None: {LEADER_RATE: "10"}, 3: {FOLLOWER_RATE: "20"}}
    assert scene.image.broker_config == {None: {LEADER_RATE: "10"}}
    restored.replace([], 2)
    assert restored.broker_config == {}


def test_a_setting_that_is_so_already_is_not_written_again() -> None:
    scene = ThrottledScene()
    scene.alter(1, (LEADER_RATE, "10"))
    same = ConfigChange(LEADER_RATE, SET, "10")
    gone = ConfigChange(FOLLOWER_RATE, DELETE, None)

    assert scene.controller.broker_configs.alter(1, [same, gone]).records == []


@pytest.mark.parametrize("broker_id", [1, ALL_BROKERS])
@pytest.mark.parametrize(
    ("value", "operation", "code"),
    [
        ("x", SET, ErrorCode.INVALID_REQUEST),
        ("-1", SET, ErrorCode.INVALID_REQUEST),
        ("1.5", SET, ErrorCode.INVALID_REQUEST),
        (str(1 << 63), SET, ErrorCode.INVALID_REQUEST),
        (None, SET, ErrorCode.INVALID_REQUEST),
        ("1", ConfigOperation.APPEND, ErrorCode.INVALID_CONFIG),
        ("1", ConfigOperation.SUBTRACT, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_rate_that_cannot_be_is_refused(
    broker_id: int | None, value: str | None, operation: ConfigOperation, code: ErrorCode
) -> None:
    scene = ThrottledScene()

    refused = scene.alter(broker_id, (FOLLOWER_RATE, value), operation=operation)

    assert refused is not None and refused.code is code
    assert refused.message is not None and FOLLOWER_RATE in refused.message
    assert scene.image.broker_config == {}


def test_other_settings_of_a_broker_are_read_when_it_starts() -> None:
    scene = ThrottledScene()

    refused = scene.alter(1, (LEADER_RATE, "10"), ("log.roll.ms", "1"))

    assert refused is not None and refused.code is ErrorCode.INVALID_REQUEST
    assert scene.alter(1, ("log.roll.ms", None)) is None, "it has none that could be removed"
    assert scene.rates(1) == (None, None), "half of a refused request is not done"


def test_rates_of_all_brokers_are_set_together_with_the_default_of_topics() -> None:
    scene = ThrottledScene()

    both = scene.alter(ALL_BROKERS, (LEADER_RATE, "10"), (MIN_IN_SYNC, "1"))
    half = scene.alter(ALL_BROKERS, (LEADER_RATE, "20"), (MIN_IN_SYNC, "0"))

    assert both is None and half is not None
    assert scene.rates(1) == ("10", None)
    assert scene.image.cluster_config == {MIN_IN_SYNC: "1"}


def test_a_replaced_configuration_has_the_named_rates_only() -> None:
    scene = ThrottledScene()
    scene.replace(1, leader_replication_throttled_rate="10")
    scene.replace(ALL_BROKERS, min_insync_replicas="1", leader_replication_throttled_rate="5")

    own = scene.replace(1, follower_replication_throttled_rate="20")
    of_all = scene.replace(ALL_BROKERS, min_insync_replicas="1")
    without_min = scene.replace(ALL_BROKERS, leader_replication_throttled_rate="5")
    other, least = scene.replace(1, log_roll_ms="1"), scene.replace(1, min_insync_replicas="1")

    assert (own, of_all) == (None, None)
    assert scene.rates(1) == (None, "20")
    assert without_min is not None and without_min.code is ErrorCode.INVALID_CONFIG
    assert other is not None and other.code is ErrorCode.INVALID_REQUEST
    assert least is not None and least.code is ErrorCode.INVALID_CONFIG


class GrownScene(Scene):
    def ask_for_two(self) -> bool:
        return self.commit(self.controller.cluster_config.ask_for_two_disks())

    def set_default(self, value: str | None) -> RequestRefusal | None:
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = ConfigChange(KEY, operation, value)
        return self.commit(self.controller.cluster_config.alter([change]))

    def least(self, name: str) -> int:
        return self.configs.min_in_sync(self.topic(name).config)

    def drop_out(self, name: str, *, left: int) -> None:
        """All but one replica leave the in-sync set."""
        now = self.partition(name)
        epochs = {left: self.image.brokers[left].broker_epoch}
        wanted = InSyncProposal(frozenset({left}), now.leader_epoch, now.partition_epoch, epochs)
        assert self.commit(self.controller.change_in_sync(left, now.topic_id, 0, wanted)) is None


def test_the_third_broker_makes_it_two_for_every_topic_that_does_not_say() -> None:
    scene = GrownScene(brokers=1)
    scene.create("earlier")
    scene.create("said", min_insync_replicas="1")
    scene.commit(
        scene.controller.create_topics([scene.controller.topic_on_demand("__consumer_offsets")])
    )
    scene.register(2)
    assert not scene.ask_for_two(), "two brokers cannot lose one and go on"

    scene.register(3)

    assert scene.ask_for_two()
    changed = scene.changes.configs_changed.values()
    assert {each.name for each in changed} == {"earlier", "said", "__consumer_offsets"}
    scene.create("later", factor=3)
    names = ("earlier", "later", "said", "__consumer_offsets")
    assert [scene.least(each) for each in names] == [2, 2, 1, 2]
    assert not scene.ask_for_two(), "it is decided once"


def test_two_disks_are_asked_for_after_a_broker_is_gone() -> None:
    scene = GrownScene(brokers=3)
    scene.ask_for_two()
    scene.create("t", factor=3)

    scene.commit(scene.controller.fence_broker(3))
    scene.commit(scene.controller.remove_broker(3))

    assert scene.least("t") == 2


def test_writes_are_not_stopped_by_it() -> None:
    """A replica that is away would make acks=all impossible: it waits for that one."""
    scene = GrownScene(brokers=3)
    scene.create("t", factor=2)
    leader = scene.partition("t").leader
    scene.drop_out("t", left=leader)
    scene.create("alone", factor=1)

    assert not scene.ask_for_two()

    now = scene.partition("t")
    epochs = {each: scene.image.brokers[each].broker_epoch for each in now.replicas}
    whole = InSyncProposal(
        frozenset(now.replicas), now.leader_epoch, now.partition_epoch, broker_epochs=epochs
    )
    scene.commit(scene.controller.change_in_sync(leader, now.topic_id, 0, whole))
    assert scene.ask_for_two(), "a topic with one replica needs one disk, whatever is asked for"


def test_a_topic_of_two_replicas_gets_its_third_before() -> None:
    """Else it would refuse acks=all if one broker died meanwhile."""
    scene = GrownScene(brokers=2)
    scene.commit(scene.controller.create_topics([NewTopic("t", 1)]))
    scene.register(3)
    assert not scene.ask_for_two()

    scene.commit(scene.controller.reassignments.grow(3))
    assert not scene.ask_for_two(), "the third is still being copied"
    now = scene.partition("t")
    epochs = {each: scene.image.brokers[each].broker_epoch for each in now.replicas}
    whole = InSyncProposal(
        frozenset(now.replicas), now.leader_epoch, now.partition_epoch, broker_epochs=epochs
    )
    scene.commit(scene.controller.change_in_sync(now.leader, now.topic_id, 0, whole))

    assert scene.ask_for_two()


def test_a_partition_without_a_leader_is_not_waited_for() -> None:
    scene = GrownScene(brokers=4)
    scene.create("gone", factor=1)
    scene.commit(scene.controller.fence_broker(scene.partition("gone").leader))

    assert scene.ask_for_two()


def test_a_default_in_the_settings_of_the_controller_is_taken_instead() -> None:
    """So that all brokers count the same from then on, whatever their own settings say."""
    scene = GrownScene(brokers=3, defaults={KEY: "3"})

    assert scene.ask_for_two()

    assert scene.image.cluster_config == {KEY: "3"}


def test_the_default_of_the_cluster_can_be_changed_but_not_removed() -> None:
    scene = GrownScene(brokers=3)
    scene.ask_for_two()
    scene.create("t", factor=3)

    assert scene.set_default("1") is None and scene.least("t") == 1
    removal, invalid = scene.set_default(None), scene.set_default("0")

    assert removal is not None and removal.code is ErrorCode.INVALID_CONFIG
    assert invalid is not None and invalid.code is ErrorCode.INVALID_REQUEST
    assert scene.least("t") == 1
    assert not scene.ask_for_two(), "somebody has said otherwise"


def test_a_client_that_replaces_all_defaults_must_name_it() -> None:
    scene = GrownScene(brokers=3)
    scene.ask_for_two()

    left_out = scene.commit(scene.controller.cluster_config.replace({}))
    named = scene.commit(scene.controller.cluster_config.replace({KEY: "3"}))

    assert left_out is not None and left_out.code is ErrorCode.INVALID_CONFIG
    assert named is None and scene.image.cluster_config == {KEY: "3"}


def test_other_settings_have_no_default_of_the_cluster() -> None:
    scene = GrownScene(brokers=3)
    change = ConfigChange("retention.ms", ConfigOperation.SET, "1")

    removal = ConfigChange("retention.ms", ConfigOperation.DELETE, None)

    refused = scene.commit(scene.controller.cluster_config.alter([change]))

    assert refused is not None and refused.code is ErrorCode.INVALID_REQUEST
    assert scene.commit(scene.controller.cluster_config.alter([removal])) is None


def test_a_lower_default_lets_the_high_watermark_move_on_without_the_eligible_replicas() -> None:
    """As a lower value of the topic itself does."""
    scene = GrownScene(brokers=3)
    scene.ask_for_two()
    scene.create("t", factor=3)
    scene.create("said", factor=3, min_insync_replicas="2")
    for name in ("t", "said"):
        leader = scene.partition(name).leader
        scene.drop_out(name, left=leader)
        assert scene.partition(name).eligible

    scene.set_default("1")

    assert scene.partition("t").eligible == ()
    assert scene.partition("said").eligible, "its own value is as before"


def test_a_snapshot_keeps_it_and_tells_of_it() -> None:
    scene = GrownScene(brokers=3)
    topic = scene.create("t", factor=3)
    before = list(scene.image.records())
    scene.ask_for_two()
    records = [decode_record(encode_record(each)) for each in scene.image.records()]

    image = MetadataImage()
    image.replace(before, 1)
    changes = image.replace(records, 2)

    assert image.cluster_config == {KEY: "2"}
    assert set(changes.configs_changed) == {topic.topic_id}


@pytest.mark.parametrize("own", [{}, {KEY: "1"}])
def test_the_sources_of_a_value_are_told_in_kafkas_order(own: dict[str, str]) -> None:
    scene = GrownScene(brokers=3, defaults={KEY: "3"})
    scene.ask_for_two()

    [entry] = scene.configs.describe(own, [KEY])

    at_topic = [(KEY, "1", ConfigSource.DYNAMIC_TOPIC_CONFIG)] if own else []
    assert list(entry.synonyms) == [
        *at_topic,
        (KEY, "3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (KEY, "3", ConfigSource.STATIC_BROKER_CONFIG),
        (KEY, "1", ConfigSource.DEFAULT_CONFIG),
    ]
