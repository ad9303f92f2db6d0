"""Whatever order messages, crashes and elections come in, nobody who may lead knows less of what
was removed, by compaction or by a request to delete, than readers were shown."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis.strategies import integers

from headwater.core_log.replication.follower import Follower
from headwater.core_log.replication.leader import Leader
from headwater.core_log.replication.metadata import NO_LEADER
from tests.core_log.replication.test_replica_histories import (
    BROKERS,
    SPARE,
    STEPS,
    TRIES_MAX,
    WITH_MOVES,
    Cluster,
    Node,
)
from tests.core_log.replication.test_rules import wipe

pytestmark = pytest.mark.simulation


class RemovingCluster(Cluster):
    """Its replicas compact, and clients delete the oldest records."""

    answers_lost = 0.5
    compacted_to = deleted_to = 0
    """The highest offset below which any replica has removed records, and the highest start that
    was answered to a client."""

    def check(self) -> None:
        super().check()
        compacted = (each.compacted_to for each in self.nodes.values())
        self.compacted_to = max(self.compacted_to, *compacted)
        state = self.state
        candidates = {state.leader, *state.in_sync, *state.eligible} - {NO_LEADER}
        for node in map(self.nodes.__getitem__, candidates):
            assert node.cleaned_to >= self.compacted_to, "whoever may lead tells no lower marks"
            assert node.start >= self.deleted_to, "whoever may lead has no deleted records"


def remove(self: Cluster, node: Node) -> None:
    """A leader stores how far its next compaction goes, and a client asks it to delete. What has
    to wait for others happens later, or never."""
    if isinstance(node.role, Leader) and not node.has_failed:
        node.cleaned_to = max(node.cleaned_to, self.random.randint(0, node.role.high_watermark))
        node.start = max(node.start, self.random.randint(0, node.role.high_watermark))
    compact(self, node)
    answer(self, node)


def compact(self: Cluster, node: Node) -> None:
    role = None if node.has_failed else node.role
    if isinstance(role, Follower):
        node.compacted_to = max(node.compacted_to, min(node.cleaned_to, role.agreed_to))
    elif isinstance(role, Leader) and role.has_announced((node.cleaned_to, 0)):
        node.compacted_to = node.cleaned_to


def answer(self: Cluster, node: Node) -> None:
    """A client hears that its records are deleted."""
    assert isinstance(self, RemovingCluster)
    role = None if node.has_failed else node.role
    if isinstance(role, Leader) and role.has_deleted(node.start):
        self.deleted_to = max(self.deleted_to, node.start)


REMOVALS = (*[remove] * 20, *[compact] * 6, *[answer] * 6)
WITH_REMOVALS = (*STEPS, *REMOVALS, *[Cluster.fetch] * 12, *[Cluster.settle] * 3)
WITH_MOVED_REPLICAS = (*WITH_MOVES, *REMOVALS)
WITH_WIPED_DISKS = (*WITH_REMOVALS, wipe, *[Cluster.propose] * 3)
Steps = Sequence[Callable[[Cluster, Node], None]]


def play(seed: int, steps: Steps) -> None:
    random = Random(seed)
    brokers = (*BROKERS, *SPARE) if Cluster.move in steps else BROKERS
    cluster = RemovingCluster(random, min_in_sync=random.randint(1, len(BROKERS)), brokers=brokers)
    cluster.steps = steps
    for _ in range(400):
        cluster.step()
    cluster.recover()


@pytest.mark.property
@pytest.mark.parametrize(
    "steps",
    [WITH_REMOVALS, WITH_MOVED_REPLICAS, WITH_WIPED_DISKS],
    ids=["in place", "moved", "wiped"],
)
@settings(max_examples=50)
@given(seed=integers(0, 1 << 32))
@example(seed=607)
def test_every_replica_that_may_lead_knows_of_all_removals(steps: Steps, seed: int) -> None:
    play(seed, steps)


def find(steps: Steps) -> str:
    """Returns what the first history finds that finds anything."""
    for seed in range(TRIES_MAX):
        try:
            play(seed, steps)
        except AssertionError as error:
            return str(error).partition("\n")[0]
    return ""


LOWER_MARKS = "whoever may lead tells no lower marks"
DELETED = "whoever may lead has no deleted records"


def compact_to_the_stored_mark(patch: pytest.MonkeyPatch) -> None:
    """A follower does not wait until all in sync have it."""
    patch.setattr(Follower, "agreed_to", property(lambda self: 1 << 62, lambda self, to: None))


def agree_without_the_own_mark(patch: pytest.MonkeyPatch) -> None:
    """A leader tells the mark of the others, which an earlier one may have told them."""

    def agreed_to(self: Leader, cleaned_to: int) -> int:
        marks = [each.marks[0] for each in self._counted]
        return min(marks, default=0) if self.has_enough_in_sync else 0

    patch.setattr(Leader, "agreed_to", agreed_to)


def agree_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    """Those that dropped out meanwhile may lead, too."""

    def agreed_to(self: Leader, cleaned_to: int) -> int:
        return min([cleaned_to, *(each.marks[0] for each in self._counted)])

    patch.setattr(Leader, "agreed_to", agreed_to)


def agree_without_joiners(patch: pytest.MonkeyPatch) -> None:
    def agreed_to(self: Leader, cleaned_to: int) -> int:
        others = self.in_sync - {self.broker_id}
        marks = [cleaned_to, *(self.progress[each].marks[0] for each in others)]
        return min(marks) if self.has_enough_in_sync else 0

    patch.setattr(Leader, "agreed_to", agreed_to)


def compact_without_joiners(patch: pytest.MonkeyPatch) -> None:
    def has_announced(self: Leader, marks: tuple[int, int]) -> bool:
        others = self.in_sync - {self.broker_id}
        has_all = all(self.progress[each].marks >= marks for each in others)
        return self.has_enough_in_sync and has_all

    patch.setattr(Leader, "has_announced", has_announced)


def let_join(patch: pytest.MonkeyPatch, **without: object) -> None:
    on_fetch = Leader.on_follower_fetch

    def on_follower_fetch(self: Leader, *given: object, **named: object) -> object:
        return on_fetch(self, *given, **{**named, **without})  # type: ignore[arg-type]

    patch.setattr(Leader, "on_follower_fetch", on_follower_fetch)


def join_without_marks(patch: pytest.MonkeyPatch) -> None:
    let_join(patch, marks_least=(0, 0))


def join_without_the_start(patch: pytest.MonkeyPatch) -> None:
    let_join(patch, start_least=0)


def delete_without_joiners(patch: pytest.MonkeyPatch) -> None:
    def has_deleted(self: Leader, start_offset: int) -> bool:
        others = self.in_sync - {self.broker_id}
        has_all = all(self.progress[each].start_offset >= start_offset for each in others)
        return self.has_enough_in_sync and has_all

    patch.setattr(Leader, "has_deleted", has_deleted)


def delete_below_the_minimum(patch: pytest.MonkeyPatch) -> None:
    def has_deleted(self: Leader, start_offset: int) -> bool:
        return self.low_watermark(start_offset) >= start_offset

    patch.setattr(Leader, "has_deleted", has_deleted)


@pytest.mark.parametrize(
    ("take_out", "found"),
    [
        (compact_to_the_stored_mark, LOWER_MARKS),
        (agree_without_the_own_mark, LOWER_MARKS),
        (agree_below_the_minimum, LOWER_MARKS),
        (agree_without_joiners, LOWER_MARKS),
        (compact_without_joiners, LOWER_MARKS),
        (join_without_marks, LOWER_MARKS),
        (join_without_the_start, DELETED),
        (delete_without_joiners, DELETED),
        (delete_below_the_minimum, DELETED),
    ],
)
def test_a_missing_rule_of_removals_is_found(
    take_out: Callable[[pytest.MonkeyPatch], None], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_out(monkeypatch)

    assert find(WITH_REMOVALS) == found
