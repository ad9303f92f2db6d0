"""A replica that has lost records does not lead while another one has them."""

from uuid import UUID

from headwater.core_log.replication.elections import Losses
from headwater.core_log.replication.metadata import NO_LEADER
from headwater.core_log.replication.metadata_records import Doubt, PartitionRecord
from tests.core_log.replication.controller_in_memory import Scene


class Damaged(Scene):
    """One partition, whose brokers have all lost their power."""

    def __init__(self, *, factor: int = 3, minimum: str = "2") -> None:
        super().__init__(brokers=3)
        self.create("t", factor=factor, min_insync_replicas=minimum)

    @property
    def at(self) -> tuple[UUID, int]:
        return self.partition("t").topic_id, 0

    def come_back(self, broker_id: int, losses: Losses | None = None) -> PartitionRecord:
        """Registers, opens its partitions, says what they have lost, and is a live member."""
        for each in (Losses(), losses or Losses()):
            epoch = self.commit(
                self.controller.register_broker(
                    broker_id, UUID(int=9), host="h", port=1, is_fenced=True, losses=each
                )
            )
        self.commit(self.controller.unfence_broker(broker_id, epoch))
        return self.partition("t")

    def lost(self) -> Losses:
        return Losses(certain={self.at})

    def doubt(self, broker_id: int, *, epoch: int = 0, end: int) -> Losses:
        return Losses(doubtful={self.at: Doubt(broker_id, epoch, end)})

    def fence_all(self) -> None:
        for each in (1, 2, 3):
            self.commit(self.controller.fence_broker(each))


def test_a_replica_that_has_lost_records_waits_for_one_that_has_them() -> None:
    scene = Damaged()
    scene.fence_all()
    assert {*scene.partition("t").eligible} == {2, 3}, "1 was replaced before"

    alone = scene.come_back(2, scene.lost())
    later = scene.come_back(3)

    assert (alone.leader, alone.in_sync, alone.eligible) == (NO_LEADER, (), (3,))
    assert (later.leader, later.in_sync) == (3, (3,))


def test_the_only_replica_with_all_records_stays_eligible_whatever_it_lost() -> None:
    """Nobody has more: a person decides, or restores its files."""
    scene = Damaged(minimum="1")
    scene.commit(scene.controller.fence_broker(2))
    scene.commit(scene.controller.fence_broker(3))
    scene.commit(scene.controller.fence_broker(1))

    after = scene.come_back(1, scene.lost())

    assert (after.leader, after.in_sync) == (1, (1,))


def test_a_new_disk_is_never_eligible() -> None:
    scene = Damaged(minimum="1")
    for each in (2, 3, 1):
        scene.commit(scene.controller.fence_broker(each))

    after = scene.come_back(1, Losses(has_new_disk=True))

    assert (after.leader, after.in_sync, after.eligible) == (NO_LEADER, (), ())


def test_a_doubtful_replica_leads_only_if_no_other_has_everything() -> None:
    scene = Damaged()
    scene.fence_all()

    doubtful = scene.come_back(2, scene.doubt(2, end=7))
    whole = scene.come_back(3)

    assert (doubtful.leader, doubtful.eligible) == (NO_LEADER, (3,))
    assert [each.broker_id for each in doubtful.doubtful] == [2]
    assert (whole.leader, whole.doubtful) == (3, ())


def test_the_most_complete_of_doubtful_replicas_leads_once_all_are_back() -> None:
    scene = Damaged()
    scene.fence_all()

    first = scene.come_back(2, scene.doubt(2, epoch=1, end=7))
    last = scene.come_back(3, scene.doubt(3, epoch=0, end=9))

    assert first.leader == NO_LEADER
    assert (last.leader, last.in_sync, last.doubtful) == (2, (2,), ()), "a later epoch counts more"


def test_a_doubt_is_not_forgotten_by_another_restart() -> None:
    scene = Damaged()
    scene.fence_all()
    scene.come_back(2, scene.doubt(2, end=7))

    scene.commit(scene.controller.fence_broker(2))
    again = scene.come_back(2)

    assert again.leader == NO_LEADER
    assert [each.broker_id for each in again.doubtful] == [2]


def test_a_doubtful_replica_that_loses_its_disk_is_not_waited_for() -> None:
    scene = Damaged()
    scene.fence_all()
    scene.come_back(2, scene.doubt(2, end=9))
    scene.come_back(3, scene.doubt(3, end=7))
    scene.fence_all()
    assert scene.partition("t").eligible == (2,)

    after = scene.come_back(2, Losses(has_new_disk=True))

    assert (after.leader, after.eligible, after.doubtful) == (NO_LEADER, (), ())


def test_an_older_copy_of_a_brokers_directory_is_not_counted_upon() -> None:
    scene = Damaged()
    scene.fence_all()

    after = scene.come_back(2, Losses(is_older_copy=True))

    assert (after.leader, after.eligible) == (NO_LEADER, (3,))


def test_a_damaged_follower_of_a_live_leader_copies_its_records_again() -> None:
    scene = Damaged()

    after = scene.come_back(3, scene.lost())

    assert (after.leader, after.in_sync, after.eligible) == (1, (1, 2), ())
