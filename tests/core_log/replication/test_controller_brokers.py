"""Brokers come and go; whoever leads has what is committed, each time in a new epoch."""

import pytest

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import ProducerIdBlock, RequestRefusal
from headwater.core_log.replication.features import SUPPORTED
from headwater.core_log.replication.leader import InSyncProposal
from headwater.core_log.replication.metadata import NO_LEADER
from headwater.core_log.replication.metadata_records import FeatureLevelRecord
from tests.core_log.replication.controller_in_memory import Scene


def test_a_single_broker_leads_under_a_new_epoch_after_every_start() -> None:
    scene = Scene()
    topic = scene.create("t", partitions=2)

    epochs = [scene.register(1), scene.register(1)]

    assert epochs == [4, 7], "the offsets of the registrations"
    for each in topic.partitions.values():
        assert (each.leader, each.in_sync) == (1, (1,))
        assert (each.leader_epoch, each.partition_epoch) == (2, 2)
    assert len(scene.changes.partitions_changed) == 2


def test_a_leader_that_restarts_is_replaced_by_one_in_sync() -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2)

    scene.register(1)

    after = scene.partition("t")
    assert (after.leader, after.in_sync, after.leader_epoch) == (2, (2,), 1)


def test_a_follower_that_restarts_must_catch_up_anew() -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2)

    scene.register(2)

    after = scene.partition("t")
    assert (after.leader, after.in_sync) == (1, (1,))
    assert (after.leader_epoch, after.partition_epoch) == (0, 1)


def test_the_last_replica_in_sync_waits_for_its_return() -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2)
    scene.commit(scene.controller.fence_broker(2))

    scene.commit(scene.controller.fence_broker(1))
    gone = scene.partition("t")
    scene.register(2)
    not_in_sync = scene.partition("t")
    scene.register(1)
    back = scene.partition("t")

    assert (gone.leader, gone.in_sync, gone.eligible) == (NO_LEADER, (), (1,))
    assert not_in_sync == gone
    assert (back.leader, back.in_sync, back.eligible) == (1, (1,), ())
    assert back.leader_epoch > gone.leader_epoch > 0


def test_replicas_that_drop_out_below_the_minimum_stay_eligible() -> None:
    scene = Scene(brokers=3)
    scene.create("t", factor=3, min_insync_replicas="2")

    scene.commit(scene.controller.fence_broker(3))
    enough = scene.partition("t")
    scene.commit(scene.controller.fence_broker(1))
    too_few = scene.partition("t")

    assert (enough.in_sync, enough.eligible) == ((1, 2), ())
    assert (too_few.leader, too_few.in_sync, too_few.eligible) == (2, (2,), (1,))


def test_two_of_three_lead_again_after_the_power_of_all_failed() -> None:
    scene = Scene(brokers=3)
    scene.create("t", factor=3, min_insync_replicas="2")

    scene.register(1)
    scene.register(2)
    scene.commit(scene.controller.fence_broker(3))

    after = scene.partition("t")
    assert (after.leader, after.in_sync, after.eligible) == (2, (2,), (3,))


def test_the_eligible_lead_in_order_once_nobody_is_in_sync() -> None:
    scene = Scene(brokers=3)
    scene.create("t", factor=3, min_insync_replicas="3")
    for broker in (2, 1, 3):
        scene.commit(scene.controller.fence_broker(broker))
    gone = scene.partition("t")

    scene.register(3)

    after = scene.partition("t")
    assert (gone.leader, gone.in_sync, gone.eligible) == (NO_LEADER, (), (1, 2, 3))
    assert (after.leader, after.in_sync, after.eligible) == (3, (3,), (1, 2))


def test_a_full_set_has_no_eligible_ones_beside_it() -> None:
    scene = Scene(brokers=2)
    topic = scene.create("t", factor=2, min_insync_replicas="2")
    scene.commit(scene.controller.fence_broker(2))
    epoch = scene.register(2)
    before = scene.partition("t")

    grow = InSyncProposal(frozenset({1, 2}), 0, before.partition_epoch, {2: epoch})
    scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, grow))

    assert (before.in_sync, before.eligible) == ((1,), (2,))
    assert (scene.partition("t").in_sync, scene.partition("t").eligible) == ((1, 2), ())


@pytest.mark.parametrize(("dead", "kept"), [((2,), ()), ((2, 1), (1, 2))])
def test_a_lower_minimum_ends_eligibility_where_somebody_is_in_sync(
    dead: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2, min_insync_replicas="2")
    for broker in dead:
        scene.commit(scene.controller.fence_broker(broker))

    scene.commit(scene.controller.replace_config("t", {"min.insync.replicas": "1"}))

    assert scene.partition("t").eligible == kept


def test_an_unclean_election_happens_only_where_it_is_allowed() -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2, unclean_leader_election_enable="true")
    scene.commit(scene.controller.fence_broker(2))
    scene.commit(scene.controller.fence_broker(1))

    scene.register(2)

    after = scene.partition("t")
    assert (after.leader, after.in_sync) == (2, (2,))


def test_a_live_replica_takes_over_uncleanly_at_once() -> None:
    scene = Scene(brokers=2)
    scene.create("t", factor=2, unclean_leader_election_enable="true")
    before = scene.partition("t")
    shrink = InSyncProposal(frozenset({1}), before.leader_epoch, before.partition_epoch)
    scene.commit(scene.controller.change_in_sync(1, before.topic_id, 0, shrink))

    scene.commit(scene.controller.fence_broker(1))

    assert (scene.partition("t").leader, scene.partition("t").in_sync) == (2, (2,))


def test_fencing_a_broker_that_is_fenced_or_unknown_changes_nothing() -> None:
    scene = Scene(brokers=2)
    scene.commit(scene.controller.fence_broker(2))

    assert not scene.controller.fence_broker(2).records
    assert not scene.controller.fence_broker(9).records
    assert scene.image.alive == [1]


def test_the_in_sync_set_is_what_the_leader_proposes() -> None:
    scene = Scene(brokers=3)
    topic = scene.create("t", factor=3)

    shrink = InSyncProposal(frozenset({1, 3}), 0, 0)
    answer = scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, shrink))
    grow = InSyncProposal(frozenset({3, 2, 1}), 0, 1, {2: 1, 3: 2})
    scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, grow))

    assert answer is None
    assert scene.partition("t").in_sync == (1, 2, 3)
    assert scene.partition("t").partition_epoch == 2
    assert scene.partition("t").leader_epoch == 0


@pytest.mark.parametrize(
    ("broker", "wanted", "code"),
    [
        (1, InSyncProposal(frozenset({1}), 2, 1), ErrorCode.NOT_CONTROLLER),
        (1, InSyncProposal(frozenset({1}), 1, 2), ErrorCode.NOT_CONTROLLER),
        (1, InSyncProposal(frozenset({1}), 0, 1), ErrorCode.FENCED_LEADER_EPOCH),
        (2, InSyncProposal(frozenset({1, 2}), 1, 1), ErrorCode.INVALID_REQUEST),
        (1, InSyncProposal(frozenset({2}), 1, 1), ErrorCode.INELIGIBLE_REPLICA),
        (1, InSyncProposal(frozenset({1, 4}), 1, 1), ErrorCode.INVALID_REQUEST),
        (1, InSyncProposal(frozenset({1}), 1, 0), ErrorCode.INVALID_UPDATE_VERSION),
        (1, InSyncProposal(frozenset({1, 3}), 1, 1), ErrorCode.INELIGIBLE_REPLICA),
        (1, InSyncProposal(frozenset({1, 2}), 1, 1, {2: 0}), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_counts_only_from_the_leader_about_what_is(
    broker: int, wanted: InSyncProposal, code: ErrorCode
) -> None:
    """The partition is in leader epoch 1 and partition epoch 1, led by 1; 3 is fenced."""
    scene = Scene(brokers=4)
    scene.commit(scene.controller.fence_broker(3))
    topic = scene.create("t", factor=1)
    before = scene.partition("t")
    scene.register(1)
    topic.partitions[0] = type(before)(topic.topic_id, 0, (1, 2, 3), (1,), 1, 1, 1)

    decision = scene.controller.change_in_sync(broker, topic.topic_id, 0, wanted)

    assert decision.answer == RequestRefusal(code)
    assert not decision.records


def test_a_leader_that_leaves_itself_out_is_replaced_in_a_new_epoch() -> None:
    scene = Scene(brokers=3)
    topic = scene.create("t", factor=3)

    resigned = InSyncProposal(frozenset({2, 3}), 0, 0)
    scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, resigned))

    after = scene.partition("t")
    assert (after.leader, after.leader_epoch, after.in_sync) == (2, 1, (2, 3))


def test_a_leader_that_resigns_without_another_in_sync_leads_again_in_a_new_epoch() -> None:
    scene = Scene(brokers=3)
    topic = scene.create("t", factor=3)
    alone = InSyncProposal(frozenset({1}), 0, 0)
    scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, alone))

    resigned = InSyncProposal(frozenset(), 0, 1)
    scene.commit(scene.controller.change_in_sync(1, topic.topic_id, 0, resigned))

    after = scene.partition("t")
    assert (after.leader, after.leader_epoch, after.in_sync) == (1, 1, (1,))


def test_a_late_copy_of_a_refused_proposal_stays_refused() -> None:
    """The refusal told the leader not to wait for 2, which then no longer has everything."""
    scene = Scene(brokers=2)
    topic = scene.create("t", factor=2)
    scene.commit(scene.controller.fence_broker(2))
    epoch, before = scene.register(2), scene.partition("t")
    grow = InSyncProposal(frozenset({1, 2}), 0, before.partition_epoch, {2: epoch})
    scene.commit(scene.controller.fence_broker(2))
    refused = scene.controller.change_in_sync(1, topic.topic_id, 0, grow)

    scene.register(2)
    again = scene.controller.change_in_sync(1, topic.topic_id, 0, grow)

    assert refused.answer == again.answer == RequestRefusal(ErrorCode.INELIGIBLE_REPLICA)


def test_a_proposal_about_an_unknown_partition_is_refused() -> None:
    scene = Scene()
    topic = scene.create("t")
    wanted = InSyncProposal(frozenset({1}), 0, 0)

    decision = scene.controller.change_in_sync(1, topic.topic_id, 1, wanted)

    assert decision.answer == RequestRefusal(ErrorCode.UNKNOWN_TOPIC_ID)


def test_producer_ids_are_handed_out_once_across_restarts() -> None:
    scene = Scene(brokers=2)

    first = scene.commit(scene.controller.allocate_producer_ids(1, 0))
    second = scene.commit(scene.controller.allocate_producer_ids(2, 1))
    epoch = scene.register(1)
    third = scene.commit(scene.controller.allocate_producer_ids(1, epoch))

    assert [first, second, third] == [ProducerIdBlock(start, 1000) for start in (0, 1000, 2000)]


def test_an_earlier_life_of_a_broker_gets_no_producer_ids() -> None:
    scene = Scene()
    scene.register(1)

    outcome = scene.controller.allocate_producer_ids(1, 0)

    assert outcome.answer == RequestRefusal(ErrorCode.STALE_BROKER_EPOCH)
    assert not outcome.records


def test_features_are_finalized_once_and_never_lowered() -> None:
    scene = Scene()

    assert scene.image.features == SUPPORTED
    assert not scene.controller.features.finalize(1).records

    scene.image.apply([FeatureLevelRecord("transaction.version", 3)], 99)

    assert not scene.controller.features.finalize(1).records


def test_clients_are_sent_to_a_live_broker() -> None:
    scene = Scene(brokers=2)

    scene.commit(scene.controller.fence_broker(1))

    assert scene.image.controller_id == 2
