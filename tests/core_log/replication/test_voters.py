"""Who votes next: three, those with a new disk, and another one for each that is away too long."""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.broker.quorum_log import encode_voters, voters_in
from headwater.core_log.broker.voter_places import VoterPlaces
from headwater.core_log.replication.snapshots import (
    MetadataSnapshot,
    decode_snapshot,
    encode_snapshot,
)
from headwater.core_log.replication.voters import (
    Absences,
    Electorate,
    NextVoters,
    ReplicaKey,
    Voter,
    VoterHistory,
    Voters,
)

KEYS = [ReplicaKey(each, UUID(int=each)) for each in range(8)]
ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN = KEYS[1:]
NEW_THREE, NEW_FOUR = (ReplicaKey(each, UUID(int=100 + each)) for each in (3, 4))
LIMIT_MS, LOOK_MS = 10_000, 250


def voters(*keys: ReplicaKey) -> Voters:
    return frozenset(keys)


def electorate(*voting: ReplicaKey, **given: Any) -> Electorate:
    """All voters are there, and nobody else is, unless it is said."""
    named: dict[str, Any] = {
        "before": frozenset(voting),
        "replaced": {},
        "was_replacing": False,
        "up_to_date": frozenset(voting) - {*given.get("away", ())},
        "observers": [],
        "racks": {},
    }
    return Electorate(frozenset(voting), **{**named, **given})


class Cluster:
    """The voters of a log, which change as often as there is something to change."""

    def __init__(self, *voting: ReplicaKey) -> None:
        self.history, self.places = VoterHistory(), VoterPlaces(ONE)
        self.sets = list[Voters]()
        self.write(frozenset(voting))

    @property
    def latest(self) -> Voters:
        return self.history.latest

    def write(self, wanted: Voters) -> None:
        offset = self.history.latest_offset + 1
        [(_, record)] = voters_in(encode_voters(self.places.next_record(wanted), now_ms=0))
        self.places.add(offset, record)
        self.history.add(offset, wanted)
        self.sets.append(wanted)

    def take_snapshot(self) -> None:
        offset = self.history.latest_offset + 1
        written = [self.places.record_at(each, offset) for each in sorted(self.latest)]
        data = encode_snapshot(MetadataSnapshot(offset, 1, [], tuple(written)), now_ms=0)
        self.places.start_over(offset, decode_snapshot(data).voters)
        self.history.start_over(offset, self.latest)

    def choose(
        self, there: Collection[ReplicaKey], away: Sequence[ReplicaKey] = ()
    ) -> NextVoters | None:
        return Electorate(
            self.latest,
            self.history.before_latest,
            self.places.replaced,
            self.places.was_replacing,
            frozenset(there),
            sorted({*there} - self.latest),
            {},
            [each for each in away if each in self.latest],
        ).choose()

    def step(self, there: Collection[ReplicaKey], away: Sequence[ReplicaKey] = ()) -> bool:
        """Makes one change, and returns whether there was one to be made."""
        change = self.choose(there, away)
        if change is not None:
            if change.gone is not None and change.new is not None:
                self.places.replace(change.gone, change.new)
            self.write(change.voters)
        return change is not None

    def settle(self, there: Collection[ReplicaKey], away: Sequence[ReplicaKey] = ()) -> Voters:
        for _ in range(10):
            if not self.step(there, away):
                return self.latest
        raise AssertionError("the voters change for ever")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        pytest.param(electorate(ONE), None, id="alone"),
        pytest.param(electorate(ONE, observers=[TWO]), None, id="two brokers"),
        pytest.param(
            electorate(ONE, observers=[TWO, FOUR, FIVE]), voters(ONE, TWO, FOUR), id="three or more"
        ),
        pytest.param(electorate(ONE, TWO, observers=[FIVE]), voters(ONE, TWO, FIVE), id="of two"),
        pytest.param(electorate(ONE, TWO, THREE, observers=[FOUR]), None, id="enough"),
        pytest.param(
            electorate(ONE, TWO, THREE, observers=[NEW_THREE]), voters(ONE, TWO), id="new disk"
        ),
        pytest.param(
            electorate(ONE, TWO, before=voters(ONE, TWO, THREE), observers=[NEW_THREE]),
            voters(ONE, TWO, NEW_THREE),
            id="its vote back",
        ),
        pytest.param(
            electorate(
                *(ONE, TWO, FOUR, FIVE),
                before=voters(ONE, TWO, THREE, FOUR, FIVE),
                observers=[NEW_THREE, SIX],
            ),
            voters(ONE, TWO, NEW_THREE, FOUR, FIVE),
            id="its vote back, of five",
        ),
        pytest.param(
            electorate(ONE, TWO, THREE, FOUR, before=voters(*KEYS[1:6]), observers=[FIVE]),
            None,
            id="removed by somebody",
        ),
        pytest.param(electorate(ONE, TWO, THREE, away=[THREE]), None, id="away, nobody else"),
        pytest.param(
            electorate(ONE, TWO, THREE, FOUR, FIVE, away=[FIVE]), None, id="of five, nobody else"
        ),
        pytest.param(electorate(ONE, TWO, THREE, FOUR, away=[FOUR]), None, id="of four"),
    ],
)
def test_the_next_voters(given: Electorate, wanted: Voters | None) -> None:
    chosen = given.choose()

    assert (None if chosen is None else chosen.voters) == wanted


def test_a_voter_that_is_away_too_long_is_replaced_by_adding_before_removing() -> None:
    cluster = Cluster(ONE, TWO, THREE)

    first = cluster.choose([ONE, TWO, FOUR], away=[THREE])
    cluster.settle([ONE, TWO, FOUR], away=[THREE])

    assert first == NextVoters(voters(ONE, TWO, THREE, FOUR), new=FOUR, gone=THREE)
    assert cluster.sets[1:] == [voters(ONE, TWO, THREE, FOUR), voters(ONE, TWO, FOUR)]


@pytest.mark.parametrize("back", [THREE, NEW_THREE], ids=["with its disk", "without"])
@pytest.mark.parametrize("is_snapshot", [False, True], ids=["log", "snapshot"])
def test_a_replaced_voter_that_comes_back_gets_no_vote(back: ReplicaKey, is_snapshot: bool) -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.settle([ONE, TWO, FOUR], away=[THREE])
    if is_snapshot:
        cluster.take_snapshot()

    assert cluster.settle([ONE, TWO, FOUR, back]) == voters(ONE, TWO, FOUR)


def test_a_replaced_voter_takes_the_place_of_the_next_that_goes() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.settle([ONE, TWO, FOUR], away=[THREE])

    assert cluster.settle([ONE, THREE, FOUR], away=[TWO]) == voters(ONE, THREE, FOUR)


@pytest.mark.parametrize("is_snapshot", [False, True], ids=["log", "snapshot"])
@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        pytest.param([ONE, TWO, FOUR], [ONE, TWO, FOUR], id="nothing has changed"),
        pytest.param([ONE, TWO, THREE, FOUR], [ONE, TWO, FOUR], id="it is back"),
        pytest.param([ONE, TWO, NEW_THREE, FOUR], [ONE, TWO, FOUR], id="it has a new disk"),
        pytest.param([ONE, TWO, THREE], [ONE, TWO, THREE], id="it is back, and the other is gone"),
        pytest.param(
            [ONE, TWO, THREE, NEW_FOUR], [ONE, TWO, THREE], id="it is back, the other wiped"
        ),
    ],
)
def test_another_controller_ends_what_the_first_began(
    there: Sequence[ReplicaKey], wanted: Sequence[ReplicaKey], is_snapshot: bool
) -> None:
    """It has watched nobody, and its log may begin with a snapshot."""
    cluster = Cluster(ONE, TWO, THREE)
    cluster.step([ONE, TWO, FOUR], away=[THREE])
    if is_snapshot:
        cluster.take_snapshot()

    assert cluster.settle(there) == {*wanted}


def test_a_voter_that_tells_its_address_meanwhile_is_replaced_all_the_same() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.step([ONE, TWO, FOUR], away=[THREE])
    for each in (ONE, FOUR):
        told = cluster.places.voter(each)._replace(host="elsewhere")
        cluster.places.tell(told)
        cluster.write(cluster.latest)

    assert cluster.settle([ONE, TWO, FOUR]) == voters(ONE, TWO, FOUR)
    assert cluster.settle([ONE, TWO, NEW_THREE, FOUR]) == voters(ONE, TWO, FOUR)


def test_five_voters_stay_five_and_are_replaced_one_after_the_other() -> None:
    cluster = Cluster(ONE, TWO, THREE, FOUR, FIVE)

    cluster.settle([ONE, TWO, THREE, SIX, SEVEN], away=[FIVE, FOUR])

    assert [len(each) for each in cluster.sets] == [5, 6, 5, 6, 5]
    assert FIVE not in cluster.sets[2] and FOUR in cluster.sets[2], "the longest first"
    assert cluster.latest == voters(ONE, TWO, THREE, SIX, SEVEN)


def test_votes_lie_in_different_racks_as_far_as_there_are() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    observers = [TWO, THREE, FOUR, FIVE]

    first = electorate(ONE, observers=observers, racks=racks).choose()
    third = electorate(ONE, THREE, observers=[TWO, FOUR, FIVE], racks=racks).choose()
    instead = electorate(
        *(ONE, THREE, FIVE), observers=[TWO, FOUR], racks=racks, away=[THREE]
    ).choose()
    full = electorate(ONE, THREE, FOUR, observers=[TWO], racks=racks, away=[FOUR]).choose()

    assert first == NextVoters(voters(ONE, THREE, FIVE))
    assert third == NextVoters(voters(ONE, THREE, FIVE))
    assert instead is not None and instead.new == FOUR
    assert full is not None and full.new == TWO, "a vote in the same rack is better than none"


def test_one_observer_replaces_one_voter() -> None:
    cluster = Cluster(ONE, TWO, THREE, FOUR, FIVE)

    assert cluster.settle([ONE, TWO, THREE, SIX], away=[FOUR, FIVE]) == {*KEYS[1:4], FIVE, SIX}


def test_four_voters_of_somebody_stay_four() -> None:
    cluster = Cluster(ONE, TWO, THREE)
    cluster.write(voters(ONE, TWO, THREE, FOUR))

    assert cluster.settle([ONE, TWO, THREE, FOUR, FIVE]) == {*KEYS[1:5]}
    assert cluster.settle([ONE, TWO, FOUR, FIVE], away=[THREE]) == {ONE, TWO, FOUR, FIVE}


def test_a_voter_that_was_removed_by_hand_meanwhile_may_get_its_vote_again() -> None:
    """The replacement is over then, and must not be remembered against it."""
    cluster = Cluster(ONE, TWO, THREE)
    cluster.step([ONE, TWO, FOUR], away=[THREE])
    cluster.write(voters(ONE, TWO, FOUR))
    cluster.write(voters(ONE, TWO, THREE, FOUR))

    assert cluster.settle([ONE, TWO, THREE, FOUR]) == {ONE, TWO, THREE, FOUR}


def test_a_replacement_without_its_new_voter_removes_nobody() -> None:
    """Somebody has taken the new vote away meanwhile."""
    cluster = Cluster(ONE, TWO, THREE)
    cluster.step([ONE, TWO, FOUR], away=[THREE])
    cluster.write(voters(ONE, TWO, THREE))

    assert not cluster.step([ONE, TWO], away=[THREE])
    assert cluster.settle([ONE, TWO, FIVE], away=[THREE]) == {ONE, TWO, FIVE}


def test_a_record_without_a_replacement_is_that_of_before() -> None:
    """Brokers of the version before read and write it."""
    cluster = Cluster(ONE, TWO)
    cluster.step([ONE, TWO, THREE])
    written = cluster.places.next_record([ONE, TWO, THREE])

    [(_, again)] = voters_in(encode_voters(written, now_ms=0))

    assert [each.replaces for each in again] == [None] * 3
    assert encode_voters(again, now_ms=0) == encode_voters(
        [each._replace(replaces=None) for each in again], now_ms=0
    )


def test_a_voter_that_replaces_another_one_is_where_its_record_says() -> None:
    """It would tell its leader of itself again and again."""
    places = VoterPlaces(FOUR)
    places.start(("here", 4), lambda _: None)
    places.add(1, [Voter(THREE, "there", 3), Voter(FOUR, "here", 4, replaces=3)])

    assert places.outdated is None


def elected() -> Absences:
    """Of a leader that has just been elected."""
    absences = Absences()
    absences.look({TWO: 1_000, THREE: 1_000}, 1_000)
    return absences


def looked(absences: Absences, until_ms: int, *, heard: Collection[ReplicaKey] = ()) -> None:
    """Looks several times a second; others than `heard` have never been heard of."""
    now_ms = absences._looked_ms
    while now_ms < until_ms:
        now_ms += LOOK_MS
        absences.look({each: now_ms if each in heard else 0 for each in (TWO, THREE)}, now_ms)


def test_a_voter_is_away_once_it_was_not_heard_of_for_the_time() -> None:
    absences = elected()

    looked(absences, 1_000 + LIMIT_MS - LOOK_MS, heard=[TWO])
    early = absences.list_away(for_ms=LIMIT_MS)
    looked(absences, 1_000 + LIMIT_MS, heard=[TWO])

    assert (early, absences.list_away(for_ms=LIMIT_MS)) == ([], [THREE])


def test_a_voter_that_was_heard_of_once_is_away_from_then_on() -> None:
    absences = elected()
    looked(absences, 10_000, heard=[TWO])
    looked(absences, 10_250, heard=[TWO, THREE])

    looked(absences, 10_250 + LIMIT_MS - LOOK_MS, heard=[TWO])

    assert not absences.list_away(for_ms=LIMIT_MS)


def test_time_in_which_the_leader_stood_still_is_no_absence() -> None:
    absences = elected()
    looked(absences, 2_000, heard=[TWO, THREE])
    heard_ms = {TWO: 2_000, THREE: 2_000}
    absences.look(heard_ms, 2_000 + LOOK_MS)

    absences.look(heard_ms, 2_000 + 100 * LIMIT_MS)

    assert not absences.list_away(for_ms=LIMIT_MS)


def test_another_election_begins_to_count_anew() -> None:
    absences = elected()
    looked(absences, 1_000 + LIMIT_MS)
    again_ms = 1_000 + 2 * LIMIT_MS

    absences.look({TWO: again_ms, THREE: again_ms}, again_ms + LOOK_MS)
    looked(absences, again_ms + LIMIT_MS)

    assert not absences.list_away(for_ms=LIMIT_MS)


def test_the_longest_absence_comes_first() -> None:
    absences = elected()
    looked(absences, 5_000, heard=[TWO])
    looked(absences, 5_000 + LIMIT_MS)

    assert absences.list_away(for_ms=LIMIT_MS) == [THREE, TWO]


def test_a_voter_that_left_is_not_remembered() -> None:
    absences = elected()
    looked(absences, 1_000 + LIMIT_MS)
    now_ms = absences._looked_ms

    absences.look({TWO: now_ms}, now_ms + LOOK_MS)

    assert not absences.list_away(for_ms=LIMIT_MS)
