"""The rates of throttled replicas are settings of one broker or of all, kept in the metadata."""

import pytest

from headwater.core_log.model.replication_throttle import FOLLOWER_RATE, LEADER_RATE
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import ConfigChange, ConfigOperation, RequestRefusal
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.replication.metadata_records import decode_record, encode_record
from headwater.core_log.replication.topic_config import MIN_IN_SYNC
from tests.core_log.replication.controller_in_memory import Scene

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
ALL_BROKERS = None


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
