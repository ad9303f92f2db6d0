"""A partition moves: new replicas copy, and once all that stay are in sync the rest leave."""

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.decisions import (
    ConfigChange,
    ConfigOperation,
    NewTopic,
    RequestRefusal,
)
from headwater.core_log.replication.elections import ElectionType
from headwater.core_log.replication.leader import InSyncProposal
from headwater.core_log.replication.metadata import NO_LEADER
from headwater.core_log.replication.metadata_records import PartitionRecord
from tests.core_log.replication.controller_in_memory import Scene

AT = TopicPartition("t", 0)


class MovingScene(Scene):
    def move(self, *replicas: int, may_change_factor: bool = True) -> RequestRefusal | None:
        moves = self.controller.reassignments
        return self.commit(moves.alter({AT: replicas}, may_change_factor=may_change_factor))[AT]

    def cancel(self) -> RequestRefusal | None:
        return self.commit(self.controller.reassignments.alter({AT: None}))[AT]

    def propose(self, *in_sync: int) -> RequestRefusal | None:
        """By the leader."""
        return self._propose(self.partition("t"), in_sync)

    def propose_for(self, index: int, *in_sync: int) -> RequestRefusal | None:
        return self._propose(self.partition("a", index), in_sync)

    def _propose(self, now: PartitionRecord, in_sync: tuple[int, ...]) -> RequestRefusal | None:
        epochs = {each: self.image.brokers[each].broker_epoch for each in in_sync}
        wanted = InSyncProposal(frozenset(in_sync), now.leader_epoch, now.partition_epoch, epochs)
        at = now.topic_id, now.partition
        decision = self.controller.change_in_sync(now.leader, *at, wanted)
        return self.commit(decision)

    def elect(self, kind: ElectionType) -> ErrorCode:
        return self.commit(self.controller.elections.elect(kind, [AT]))[AT]

    @property
    def assigned(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.partition("t").assignment)


def test_a_partition_moves_once_all_that_stay_are_in_sync() -> None:
    scene = MovingScene(brokers=4)
    scene.create("t", factor=2)

    scene.move(3, 4)
    begun = scene.partition("t")
    scene.propose(1, 2, 3)
    half = scene.partition("t")
    scene.propose(1, 2, 3, 4)

    after = scene.partition("t")
    assert (
        begun.assignment == ((3, 4, 1, 2), (3, 4), (1, 2)) and half.assignment == begun.assignment
    )
    assert (begun.leader, begun.leader_epoch) == (1, 0), "nothing else has changed yet"
    assert after.assignment == ((3, 4), (), ())
    assert (after.leader, after.in_sync, after.leader_epoch) == (3, (3, 4), 1)


def test_another_order_of_replicas_takes_hold_at_once() -> None:
    scene = MovingScene(brokers=2)
    scene.create("t", factor=2)

    scene.move(2, 1)

    after = scene.partition("t")
    assert after.assignment == ((2, 1), (), ())
    assert (after.leader, after.in_sync, after.leader_epoch) == (1, (2, 1), 0)


def test_fewer_replicas_leave_at_once_under_a_new_epoch() -> None:
    scene = MovingScene(brokers=3)
    scene.create("t", factor=3)

    scene.move(2)

    after = scene.partition("t")
    assert after.assignment == ((2,), (), ())
    assert (after.leader, after.in_sync, after.leader_epoch) == (2, (2,), 1)


def test_a_cancelled_move_leaves_what_was_there() -> None:
    scene = MovingScene(brokers=4)
    scene.create("t", factor=2)
    scene.move(3, 4)
    scene.propose(1, 2, 3)

    assert scene.cancel() is None

    after = scene.partition("t")
    assert after.assignment == ((1, 2), (), ())
    assert (after.leader, after.in_sync, after.leader_epoch) == (1, (1, 2), 1)
    refused = scene.cancel()
    assert refused is not None and refused.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_that_only_new_replicas_could_go_on_with_is_not_cancelled() -> None:
    scene = MovingScene(brokers=3)
    scene.create("t")
    scene.move(1, 2, 3)
    scene.propose(1, 2)
    scene.commit(scene.controller.fence_broker(1))
    before = scene.partition("t")

    refused = scene.cancel()

    assert (before.leader, before.in_sync) == (2, (2,))
    assert refused is not None and refused.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert scene.partition("t") == before


def test_a_second_move_takes_the_place_of_the_first() -> None:
    scene = MovingScene(brokers=4)
    scene.create("t", factor=2)
    scene.move(1, 3)
    scene.propose(1, 2)

    scene.move(1, 4)

    assert scene.assigned == ((1, 4, 2), (4,), (2,))


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ((), "The manual partition assignment includes an empty replica list."),
        (
            (1, 9),
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        ((2, 2), "The manual partition assignment includes the broker 2 more than once."),
    ],
)
def test_an_impossible_assignment_is_refused_in_kafkas_words(
    replicas: tuple[int, ...], message: str
) -> None:
    scene = MovingScene(brokers=2)
    scene.create("t", factor=2)

    refused = scene.move(*replicas)

    assert refused == RequestRefusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_another_number_of_replicas_is_refused_where_the_request_says_so() -> None:
    scene = MovingScene(brokers=3)
    scene.create("t", factor=2)

    refused = scene.move(1, 2, 3, may_change_factor=False)

    assert refused is not None and refused.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert scene.move(1, 3, may_change_factor=False) is None


def test_the_first_replica_leads_again_when_it_is_wanted() -> None:
    scene = MovingScene(brokers=2)
    scene.create("t", factor=2)
    not_needed = scene.elect(ElectionType.PREFERRED)
    scene.register(1)
    not_yet = scene.elect(ElectionType.PREFERRED)
    scene.propose(1, 2)

    done = scene.elect(ElectionType.PREFERRED)

    after = scene.partition("t")
    assert not_needed is ErrorCode.ELECTION_NOT_NEEDED
    assert not_yet is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert done is ErrorCode.NONE
    assert (after.leader, after.in_sync, after.leader_epoch) == (1, (1, 2), 2)


def test_an_unclean_election_gives_records_up_only_where_nobody_leads() -> None:
    scene = MovingScene(brokers=2)
    scene.create("t", factor=2)
    not_needed = scene.elect(ElectionType.UNCLEAN)
    scene.commit(scene.controller.fence_broker(2))
    scene.commit(scene.controller.fence_broker(1))
    nobody = scene.elect(ElectionType.UNCLEAN)
    scene.register(2)
    before = scene.partition("t")

    done = scene.elect(ElectionType.UNCLEAN)

    after = scene.partition("t")
    assert not_needed is ErrorCode.ELECTION_NOT_NEEDED
    assert nobody is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert (before.leader, before.eligible) == (NO_LEADER, (1,))
    assert done is ErrorCode.NONE
    assert (after.leader, after.in_sync, after.eligible) == (2, (2,), ())


def test_a_broker_is_removed_only_when_nothing_is_expected_of_it() -> None:
    scene = MovingScene(brokers=3)
    scene.create("t", factor=3)

    def remove() -> str | None:
        refused = scene.commit(scene.controller.remove_broker(3))
        return None if refused is None else refused.message

    alive = remove()
    scene.commit(scene.controller.fence_broker(3))
    full = remove()
    scene.move(1, 2)
    empty = remove()
    gone = remove()

    assert alive == "Broker 3 is alive: stop it first"
    assert full is not None and full.startswith("Broker 3 has replicas of 1 partition(s)")
    assert empty is None and 3 not in scene.image.brokers
    assert gone == "Broker ID 3 is not currently registered"
    scene.commit(scene.controller.fence_broker(2))
    scene.move(1)
    last = scene.commit(scene.controller.remove_broker(2))
    assert last is not None and last.code is ErrorCode.POLICY_VIOLATION


def test_topics_get_more_replicas_when_there_are_more_brokers() -> None:
    scene = MovingScene(brokers=1)
    scene.create("t", partitions=2)
    scene.commit(
        scene.controller.create_topics([scene.controller.topic_on_demand("__consumer_offsets")])
    )
    scene.register(2)
    scene.create("fixed")

    count = scene.commit(scene.controller.reassignments.grow(2))

    assert count == 6, "of t 2, and of the offsets 4"
    assert scene.partition("t", 0).assignment == ((1, 2), (2,), ())
    assert len(scene.partition("fixed").replicas) == 1
    assert scene.commit(scene.controller.reassignments.grow(2)) == 0, "they are being copied"
    scene.propose(1, 2)
    assert scene.assigned == ((1, 2), (), ())


def test_a_number_that_somebody_chose_stays() -> None:
    scene = MovingScene(brokers=1)
    scene.create("t")
    scene.register(2)
    scene.register(3)

    scene.move(1, 2)
    scene.propose(1, 2)
    scene.commit(scene.controller.reassignments.grow(3))

    assert scene.assigned == ((1, 2), (), ())
    scene.move(2, 3)
    scene.cancel()
    assert scene.topic("t").has_fixed_replicas


def test_few_partitions_are_copied_at_a_time_and_internal_ones_first() -> None:
    scene = MovingScene(brokers=1)
    scene.create("a", partitions=30)
    scene.commit(
        scene.controller.create_topics([scene.controller.topic_on_demand("__consumer_offsets")])
    )
    scene.register(2)

    count = scene.commit(scene.controller.reassignments.grow(2))

    assert count == 20
    assert all(e.adding == (2,) for e in scene.topic("__consumer_offsets").partitions.values())
    assert scene.commit(scene.controller.reassignments.grow(2)) == 0


def test_a_topic_grows_onto_the_live_brokers_while_a_replica_is_away() -> None:
    scene = MovingScene(brokers=1)
    scene.commit(scene.controller.create_topics([NewTopic("t", 1)]))
    scene.register(2)
    scene.commit(scene.controller.reassignments.grow(3))
    scene.propose(1, 2)
    scene.register(3)
    scene.commit(scene.controller.fence_broker(2))

    count = scene.commit(scene.controller.reassignments.grow(3))

    assert count == 1 and scene.assigned == ((1, 2, 3), (3,), ())
    scene.propose(1, 3)
    assert scene.partition("t").in_sync == (1, 3)
    assert scene.commit(scene.controller.reassignments.grow(3)) == 0, "the third is only away"


def test_copies_that_wait_for_a_dead_broker_hold_up_no_others() -> None:
    scene = MovingScene(brokers=1)
    scene.create("a", partitions=30)
    scene.register(2)
    scene.register(3)
    scene.commit(scene.controller.reassignments.grow(3))
    begun = [each for each in scene.topic("a").partitions.values() if each.adding]
    scene.commit(scene.controller.fence_broker(2))
    for each in begun:
        scene.propose_for(each.partition, 1, 3)

    count = scene.commit(scene.controller.reassignments.grow(3))

    assert (len(begun), count) == (20, 10)
    assert all(3 in each.replicas for each in scene.topic("a").partitions.values())


def test_partitions_that_refuse_writes_grow_first() -> None:
    scene = MovingScene(brokers=1)
    scene.create("a", partitions=30)
    scene.register(2)
    scene.commit(scene.controller.create_topics([NewTopic("t", 1)]))
    scene.register(3)
    alter = [ConfigChange("min.insync.replicas", ConfigOperation.SET, "2")]
    scene.commit(scene.controller.cluster_config.alter(alter))
    scene.commit(scene.controller.fence_broker(2))

    scene.commit(scene.controller.reassignments.grow(3))

    assert scene.partition("t").adding == (3,)
