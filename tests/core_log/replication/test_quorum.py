"""Single decisions of the metadata quorum, each with the rule that it follows."""

from uuid import UUID

import pytest

from headwater.core_log.foundation.errors import CorruptLog
from headwater.core_log.replication.follower import EpochEnd
from headwater.core_log.replication.quorum import (
    BeginQuorumEpochMessage,
    EndQuorumEpochMessage,
    LeaderChange,
    Quorum,
    QuorumAnswer,
    QuorumEffects,
    QuorumRefusal,
    Role,
    Timeouts,
    VoteMessage,
    VotersChange,
)
from headwater.core_log.replication.voters import (
    NOBODY,
    Ballot,
    BallotAnswer,
    ElectionState,
    ReplicaKey,
    VoterHistory,
    Voters,
)
from tests.core_log.replication.quorum_world import MemoryLog

ONE, TWO, THREE, FOUR = (ReplicaKey(each, UUID(int=each)) for each in (1, 2, 3, 4))
ALL = frozenset({ONE, TWO, THREE})
FETCH_MS, ELECTION_MS = 1500, 500


def quorum_of(
    replica: ReplicaKey = ONE,
    voters: Voters = ALL,
    *,
    log: MemoryLog | None = None,
    history: VoterHistory | None = None,
    stored: ElectionState | None = None,
) -> Quorum:
    return Quorum(
        replica,
        log or MemoryLog(),
        stored=stored or ElectionState(),
        voters=history or VoterHistory(voters),
        timeouts=Timeouts(FETCH_MS, ELECTION_MS),
        jitter_ms=lambda: 0,
        now_ms=0,
    )


def log_of(*epochs: int) -> MemoryLog:
    log = MemoryLog()
    log.records = [(epoch, place) for place, epoch in enumerate(epochs)]
    log.sync()
    return log


def ballot(
    candidate: ReplicaKey, voter: ReplicaKey, epoch: int, *, is_pre_vote: bool = False
) -> Ballot:
    return Ballot(candidate, voter, epoch, -1, 0, is_pre_vote)


def append(quorum: Quorum, log: MemoryLog, effects: QuorumEffects) -> None:
    log.records += [(quorum.epoch, each) for each in effects.append]


def elect(quorum: Quorum, now_ms: int = ELECTION_MS) -> QuorumEffects:
    """Makes it the leader by the vote of one other voter; its last effects."""
    effects = quorum.on_tick(now_ms)
    while quorum.role in (Role.PROSPECTIVE, Role.CANDIDATE):
        asked = next(each.ballot for each in effects.send if isinstance(each, VoteMessage))
        effects = quorum.on_vote_answer(asked, BallotAnswer(True, quorum.epoch), now_ms)
        if quorum.role is Role.CANDIDATE:
            effects = quorum.on_tick(now_ms)
    assert quorum.is_leader
    return effects


def test_an_only_voter_leads_at_once_and_commits_what_its_disk_has() -> None:
    log = log_of(0, 0)
    quorum = quorum_of(voters=frozenset({ONE}), log=log)

    effects = quorum.on_tick(0)
    append(quorum, log, effects)
    early = quorum.on_durable(0)
    log.sync()
    committed = quorum.on_durable(0)

    assert effects.store == ElectionState(1, 1, ONE)
    assert effects.append == (LeaderChange(1),) and effects.role is Role.LEADER
    assert early.commit_to is None
    assert committed.commit_to == 3
    assert not quorum.on_tick(1_000_000).send


def test_each_start_of_an_only_voter_is_a_new_epoch() -> None:
    quorum = quorum_of(voters=frozenset({ONE}), stored=ElectionState(7, 1, ONE))

    assert quorum.role is Role.RESIGNED
    quorum.on_tick(0)

    assert (quorum.role, quorum.epoch) == (Role.LEADER, 8)


def test_a_vote_is_given_once_in_an_epoch_across_restarts() -> None:
    voter = quorum_of(TWO)

    first, effects = voter.on_vote(ballot(ONE, TWO, 1), 0)
    again, repeated = voter.on_vote(ballot(ONE, TWO, 1), 0)
    assert effects.store is not None
    after = quorum_of(TWO, stored=effects.store)
    other, _ = after.on_vote(ballot(THREE, TWO, 1), 0)
    newer, _ = after.on_vote(ballot(THREE, TWO, 2), 0)

    assert first.is_granted and again.is_granted and repeated.store is None
    assert effects.store == ElectionState(1, NOBODY, ONE)
    assert not other.is_granted
    assert newer.is_granted


def test_a_vote_for_another_directory_of_the_node_is_not_given() -> None:
    wiped = quorum_of(ReplicaKey(2, UUID(int=99)))

    answer, _ = wiped.on_vote(ballot(ONE, TWO, 1), 0)

    assert not answer.is_granted


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "is_granted"),
    [(1, 9, False), (2, 2, False), (2, 3, True), (3, 1, True)],
)
def test_a_vote_needs_a_log_that_is_at_least_as_new(
    last_epoch: int, end_offset: int, is_granted: bool
) -> None:
    voter = quorum_of(TWO, log=log_of(1, 2, 2))

    answer, _ = voter.on_vote(Ballot(ONE, TWO, 5, last_epoch, end_offset, False), 0)

    assert answer.is_granted is is_granted


def test_a_pre_vote_changes_nothing_and_is_refused_while_the_leader_is_heard() -> None:
    voter = quorum_of(TWO, stored=ElectionState(4, 1, None))

    refused, effects = voter.on_vote(ballot(THREE, TWO, 4, is_pre_vote=True), FETCH_MS - 1)
    granted, after = voter.on_vote(ballot(THREE, TWO, 4, is_pre_vote=True), FETCH_MS)

    assert not refused.is_granted and refused.leader == 1
    assert granted.is_granted
    assert effects == after == QuorumEffects()


def test_a_node_that_was_cut_off_asks_before_it_raises_the_epoch() -> None:
    quorum = quorum_of(stored=ElectionState(4, 2, None))

    effects = quorum.on_tick(FETCH_MS)

    asked = [each.ballot for each in effects.send if isinstance(each, VoteMessage)]
    assert [(each.voter, each.epoch, each.is_pre_vote) for each in asked] == [
        (TWO, 4, True),
        (THREE, 4, True),
    ]
    assert effects.store is None and quorum.role is Role.PROSPECTIVE


def test_a_prospective_follows_the_leader_it_hears_of() -> None:
    quorum = quorum_of(stored=ElectionState(4, NOBODY, None))
    asked = quorum.on_tick(ELECTION_MS).send[0]
    assert isinstance(asked, VoteMessage)

    effects = quorum.on_vote_answer(asked.ballot, BallotAnswer(False, 4, 3), ELECTION_MS)

    assert effects.role is Role.FOLLOWER and effects.store == ElectionState(4, 3, None)


def test_hearsay_does_not_bring_back_a_leader_that_was_waited_for_in_vain() -> None:
    """Otherwise two voters would tell each other of a dead one for ever."""
    quorum = quorum_of(stored=ElectionState(4, 3, None))
    asked = quorum.on_tick(FETCH_MS).send
    ballots = {each.ballot.voter: each.ballot for each in asked if isinstance(each, VoteMessage)}

    quorum.on_vote_answer(ballots[TWO], BallotAnswer(False, 4, 3), FETCH_MS)
    hearsay = quorum.role
    quorum.on_leader(3, 4, FETCH_MS)

    assert hearsay is Role.PROSPECTIVE
    assert quorum.role is Role.FOLLOWER


def test_a_leader_commits_nothing_of_older_epochs_by_counting() -> None:
    log = log_of(1, 2)
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    log.sync()

    _, of_older = quorum.on_fetch(TWO, 2, 2, 600)
    _, of_own = quorum.on_fetch(TWO, 3, quorum.epoch, 601)

    assert of_older.commit_to is None
    assert of_own.commit_to == 3


def test_a_leader_knows_when_a_replica_that_is_behind_last_had_everything() -> None:
    log = MemoryLog()
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    log.sync()
    end_offset, epoch = log.end_offset, quorum.epoch

    quorum.on_fetch(TWO, end_offset, epoch, now_ms=1_000)
    log.records.append((epoch, "more"))
    quorum.on_fetch(TWO, end_offset, epoch, now_ms=1_100)
    quorum.on_fetch(THREE, 0, -1, now_ms=1_100)

    assert quorum.caught_up_ms == {TWO: 1_000}
    assert quorum.heard_ms[TWO] == quorum.heard_ms[THREE] == 1_100


def test_a_new_leader_tells_its_voters_until_they_fetch() -> None:
    quorum = quorum_of()
    log = quorum._log
    assert isinstance(log, MemoryLog)
    append(quorum, log, elect(quorum))

    told = quorum.on_tick(ELECTION_MS)
    quorum.on_fetch(TWO, 0, -1, 600)
    again = quorum.on_tick(ELECTION_MS + 100)

    assert told.send == tuple(BeginQuorumEpochMessage(each, 1) for each in (TWO, THREE))
    assert again.send == (BeginQuorumEpochMessage(THREE, 1),)


def test_a_leader_without_listeners_resigns_and_never_follows_itself() -> None:
    log = MemoryLog()
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    quorum.on_fetch(THREE, 1, 1, 1000)
    heard = quorum.on_tick(1000 + 2 * FETCH_MS)
    quorum.on_leader(1, 1, 5000)

    assert quorum.role is Role.RESIGNED
    assert heard.send == tuple(
        EndQuorumEpochMessage(each, 1, (THREE, TWO)) for each in (THREE, TWO)
    )


def test_the_first_successor_of_a_leader_that_resigns_stands_at_once() -> None:
    first = quorum_of(TWO, stored=ElectionState(4, 1, None))
    second = quorum_of(THREE, stored=ElectionState(4, 1, None))
    for each in (first, second):
        each.on_end_epoch(4, (TWO, THREE), 100)

    first.on_tick(100)
    second.on_tick(100)
    answer, _ = second.on_vote(ballot(TWO, THREE, 4, is_pre_vote=True), 100)

    assert (first.role, second.role) == (Role.PROSPECTIVE, Role.FOLLOWER)
    assert answer.is_granted
    assert second.next_deadline_ms() == 100 + ELECTION_MS


def test_an_answer_of_the_leader_that_it_does_not_lead_ends_the_wait() -> None:
    quorum = quorum_of(stored=ElectionState(4, 3, None))

    quorum.on_fetched(QuorumAnswer(3, 4, NOBODY, is_from_leader=False), 200)

    assert quorum.next_deadline_ms() == 200


def leader_of_one() -> tuple[Quorum, MemoryLog]:
    log = MemoryLog()
    quorum = quorum_of(voters=frozenset({ONE}), log=log)
    append(quorum, log, quorum.on_tick(0))
    return quorum, log


def test_voters_do_not_change_before_the_leader_has_committed_in_its_epoch() -> None:
    quorum, _ = leader_of_one()

    assert quorum.propose_voters(ALL, 0) is QuorumRefusal.EPOCH_UNCOMMITTED


def test_voters_join_only_once_they_have_what_is_committed() -> None:
    quorum, log = leader_of_one()
    log.sync()
    quorum.on_durable(0)
    quorum.on_fetch(TWO, 1, 1, 0)

    early = quorum.propose_voters(ALL, 0)
    quorum.on_fetch(THREE, 1, 1, 0)
    late = quorum.propose_voters(ALL, FETCH_MS)
    effects = quorum.propose_voters(ALL, 1)

    assert early is late is QuorumRefusal.NOT_CAUGHT_UP
    assert isinstance(effects, QuorumEffects) and effects.append == (VotersChange(ALL),)
    append(quorum, log, effects)
    assert quorum.propose_voters(ALL - {TWO}, 2) is QuorumRefusal.CHANGE_UNCOMMITTED


def test_the_same_voters_are_written_again_once_their_last_record_is_committed() -> None:
    log = MemoryLog()
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    log.sync()
    early = quorum.repeat_voters()
    quorum.on_fetch(TWO, 1, 1, 600)
    assert quorum.may_record_voters

    effects = quorum.repeat_voters()

    assert early is QuorumRefusal.EPOCH_UNCOMMITTED
    assert isinstance(effects, QuorumEffects) and effects.append == (VotersChange(ALL),)
    append(quorum, log, effects)
    assert not quorum.may_record_voters
    assert quorum.repeat_voters() is QuorumRefusal.CHANGE_UNCOMMITTED
    assert quorum_of(log=MemoryLog()).repeat_voters() is QuorumRefusal.NOT_LEADER


def test_the_first_set_of_three_is_sent_once_it_is_on_the_leaders_disk() -> None:
    """An only voter that forgot it would elect itself, while the others elect without it."""
    quorum, log = leader_of_one()
    log.sync()
    quorum.on_durable(0)
    for each in (TWO, THREE):
        quorum.on_fetch(each, 1, 1, 0)
    effects = quorum.propose_voters(ALL, 0)
    assert isinstance(effects, QuorumEffects)
    append(quorum, log, effects)

    held_back = quorum.sent_to
    log.sync()

    assert (held_back, quorum.sent_to) == (1, 2)


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        (ALL - {TWO, THREE}, QuorumRefusal.MORE_THAN_ONE),
        ((ALL - {TWO}) | {FOUR}, QuorumRefusal.MORE_THAN_ONE),
        (ALL, QuorumRefusal.MORE_THAN_ONE),
        (ALL | {FOUR}, QuorumRefusal.NOT_CAUGHT_UP),
        (frozenset(), QuorumRefusal.NOBODY_LEFT),
    ],
)
def test_one_voter_changes_at_once(wanted: Voters, refusal: QuorumRefusal) -> None:
    log = MemoryLog()
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    log.sync()
    quorum.on_fetch(TWO, 1, 1, 600)

    assert quorum.propose_voters(wanted, 600) is refusal


def test_a_removed_leader_leads_until_that_is_committed_and_does_not_count_itself() -> None:
    log = MemoryLog()
    quorum = quorum_of(log=log)
    append(quorum, log, elect(quorum))
    log.sync()
    quorum.on_fetch(TWO, 1, 1, 600)
    effects = quorum.propose_voters(ALL - {ONE}, 600)
    assert isinstance(effects, QuorumEffects)
    append(quorum, log, effects)
    log.sync()
    quorum.on_durable(600)

    _, one_of_two = quorum.on_fetch(TWO, 2, 1, 601)
    role = quorum.role
    _, both = quorum.on_fetch(THREE, 2, 1, 602)

    assert one_of_two.commit_to is None and role is Role.LEADER
    assert both.commit_to == 2 and quorum.role is Role.RESIGNED


def test_a_removed_voter_stands_until_the_removal_is_known_to_be_committed() -> None:
    """The others may be unable to elect anybody without the record that only it has."""
    log = log_of(1, 1)
    voters = VoterHistory(ALL)
    voters.add(1, ALL - {ONE})
    quorum = quorum_of(log=log, history=voters, stored=ElectionState(1, 1, ONE))

    uncertain = quorum.on_tick(ELECTION_MS)
    quorum.on_leader(2, 2, ELECTION_MS)
    quorum.on_append(committed_to=2)
    certain = quorum.on_tick(ELECTION_MS + FETCH_MS)

    asked = [each.ballot.voter for each in uncertain.send if isinstance(each, VoteMessage)]
    assert asked == [TWO, THREE]
    assert not certain.send and quorum.role is Role.UNATTACHED


def test_a_follower_refuses_to_truncate_what_is_committed() -> None:
    quorum = quorum_of(log=log_of(1, 1, 1), stored=ElectionState(4, 3, None))
    quorum.on_append(committed_to=2)

    fine = quorum.on_fetched(QuorumAnswer(3, 4, 3, True, EpochEnd(1, 2)), 0)

    assert fine.truncate_to == 2
    with pytest.raises(CorruptLog, match="does not have committed metadata"):
        quorum.on_fetched(QuorumAnswer(3, 4, 3, True, EpochEnd(1, 1)), 0)
