"""The checker finds every kind of fault that is planted into a history without one."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.core_log.model.log import Isolation, TopicPartition
from tests.simulation.checker import (
    GroupCommit,
    GroupStart,
    Marks,
    Observed,
    Opened,
    Outcome,
    Poll,
    Sent,
    problems_of,
)

A, B, COPY = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("copies", 0)


def sound() -> Observed:
    """Three transactions, one of which is aborted, an append, a relay, two readers, and a group
    whose partition changes hands."""
    seen = Observed(relayed={"relay": ("a", "copies")})
    first = Sent("w", 1, [(A, "w/1"), (B, "w/2")], {"w/1": 0, "w/2": 0}, outcome=Outcome.COMMITTED)
    given_up = Sent("w", 1, [(A, "w/3")], {"w/3": 2}, outcome=Outcome.ABORTED)
    plain = Sent("p", 0, [(A, "p/1")], {"p/1": 4}, is_exact=False, outcome=Outcome.COMMITTED)
    later = Sent("w", 2, [(B, "w/4"), (B, "w/5")], {"w/4": 2, "w/5": 3}, outcome=Outcome.COMMITTED)
    copied = Sent(
        "relay",
        1,
        [(COPY, "relay:w/1"), (COPY, "relay:p/1")],
        {"relay:w/1": 0, "relay:p/1": 1},
        reads=["w/1", "p/1"],
        is_exact=False,
        outcome=Outcome.COMMITTED,
    )
    seen.opened.append(Opened("w", 1, seen.place()))
    for each in (first, given_up, plain):
        each.commit_at = seen.place()
    seen.opened.append(Opened("w", 2, seen.place()))
    for each in (later, copied):
        each.commit_at = seen.place()
    seen.sent = [first, given_up, plain, later, copied]
    seen.final = {
        A: [(0, "w/1"), (4, "p/1")],
        B: [(0, "w/2"), (2, "w/4"), (3, "w/5")],
        COPY: [(0, "relay:w/1"), (1, "relay:p/1")],
    }
    committed, uncommitted = Isolation.COMMITTED, Isolation.UNCOMMITTED
    seen.polls = [
        Poll("c", committed, A, 0, [(0, "w/1")], 2),
        Poll("c", committed, A, 2, [(4, "p/1")], 5),
        Poll("u", uncommitted, A, 0, [(0, "w/1"), (2, "w/3"), (4, "p/1")], 5),
        Poll("c", committed, B, 0, [(0, "w/2"), (2, "w/4"), (3, "w/5")], 5),
    ]
    seen.marks = [told_mark(seen, 2), told_mark(seen, 5)]
    seen.polls += [
        Poll("g/m1/1", committed, A, 0, [(0, "w/1")], 1),
        Poll("g/m2/1", committed, A, 1, [(4, "p/1")], 5),
    ]
    for start, end in ((0, 1), (1, 5)):
        seen.group_starts.append(GroupStart("g", A, start, seen.place()))
        seen.group_commits.append(GroupCommit("g", A, end, seen.place(), seen.place()))
    seen.group_final = {("g", A): 5}
    return seen


def told_mark(seen: Observed, stable: int) -> Marks:
    return Marks("c", A, stable, seen.place(), seen.place())


def test_a_history_without_a_fault_has_no_problem() -> None:
    assert problems_of(sound()) == []


def test_answers_may_overtake_each_other() -> None:
    seen = sound()
    ask_before_others_are_told(seen)

    assert problems_of(seen) == []


def lose(seen: Observed) -> None:
    seen.final[A].remove((4, "p/1"))
    seen.final[COPY].remove((1, "relay:p/1"))
    seen.polls = []


def store_an_aborted_value(seen: Observed) -> None:
    seen.final[A].insert(1, (2, "w/3"))


def show_an_aborted_value(seen: Observed) -> None:
    seen.polls.append(Poll("other", Isolation.COMMITTED, A, 2, [(2, "w/3")], 3))


def show_what_is_then_gone(seen: Observed) -> None:
    seen.sent.append(Sent("x", 1, [(B, "x/1")]))
    seen.polls.append(Poll("other", Isolation.COMMITTED, B, 5, [(5, "x/1")], 6))


def tear(seen: Observed) -> None:
    seen.sent[3].outcome = Outcome.UNKNOWN
    seen.final[B].remove((3, "w/5"))
    seen.polls = seen.polls[:3]


def double(seen: Observed) -> None:
    seen.final[B].append((4, "w/5"))
    seen.polls[3] = replace(seen.polls[3], records=[*seen.polls[3].records, (4, "w/5")])


def invent(seen: Observed) -> None:
    seen.final[B].append((6, "nobody/1"))


def move(seen: Observed) -> None:
    seen.sent[3].offsets["w/5"] = 4


def change_a_value(seen: Observed) -> None:
    seen.polls.append(Poll("other", Isolation.UNCOMMITTED, A, 2, [(2, "w/9"), (4, "p/1")], 5))


def turn_round(seen: Observed) -> None:
    seen.final[B] = [(0, "w/2"), (2, "w/5"), (3, "w/4")]
    seen.sent[3].offsets.clear()
    seen.polls = seen.polls[:3]


def skip(seen: Observed) -> None:
    seen.polls[3] = replace(seen.polls[3], records=[(0, "w/2"), (3, "w/5")])


def go_back(seen: Observed) -> None:
    seen.polls[1] = replace(seen.polls[1], records=[(0, "w/1"), (4, "p/1")])


def jump(seen: Observed) -> None:
    seen.polls[1] = replace(seen.polls[1], from_offset=3)


def take_back_a_mark(seen: Observed) -> None:
    seen.marks.append(told_mark(seen, 4))


def ask_before_others_are_told(seen: Observed) -> None:
    """An older answer may take longer."""
    asked_at, last = seen.place(), seen.place()
    seen.marks.append(Marks("c", A, 6, asked_at, last))
    seen.marks.append(Marks("other", A, 5, asked_at, seen.place()))


def let_a_fenced_writer_through(seen: Observed) -> None:
    seen.sent[3].instance = 1


def relay_twice(seen: Observed) -> None:
    seen.final[COPY].append((2, "relay:w/1"))


def relay_never(seen: Observed) -> None:
    seen.final[COPY].remove((1, "relay:p/1"))
    seen.sent[4].values.pop()


def close_a_circle(seen: Observed) -> None:
    seen.sent[0].reads = ["relay:w/1"]


def take_back_an_offset(seen: Observed) -> None:
    seen.group_commits.append(GroupCommit("g", A, 4, seen.place(), seen.place()))


def lose_an_offset(seen: Observed) -> None:
    seen.group_final["g", A] = 1


def begin_anew(seen: Observed) -> None:
    seen.group_starts[1] = replace(seen.group_starts[1], offset=0)


def pass_over(seen: Observed) -> None:
    seen.polls.pop()


def hang(seen: Observed) -> None:
    seen.stuck = ["open transaction in a-0"]


@pytest.mark.parametrize(
    ("plant", "problem"),
    [
        (lose, "lost: p/1"),
        (store_an_aborted_value, "aborted and stored: w/3"),
        (show_an_aborted_value, "aborted read: w/3"),
        (show_what_is_then_gone, "read before its commit: x/1"),
        (tear, "torn: of ['w/4', 'w/5'] only ['w/4']"),
        (double, "doubled: w/5"),
        (invent, "invented: nobody/1"),
        (move, "moved: w/5"),
        (change_a_value, "two values: "),
        (turn_round, "out of order: w/5"),
        (skip, "skipped: c in "),
        (go_back, "poll goes back: c in "),
        (jump, "poll jumps: c in "),
        (take_back_a_mark, "mark goes back: "),
        (let_a_fenced_writer_through, "fenced writer got through: "),
        (relay_twice, "badly relayed: w/1"),
        (relay_never, "badly relayed: p/1"),
        (close_a_circle, "circle: "),
        (take_back_an_offset, "group offset goes back: g in "),
        (lose_an_offset, "group offset is lost: g in "),
        (begin_anew, "group reads again: g in "),
        (pass_over, "unread: g passed over p/1"),
        (hang, "stuck: open transaction"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[Observed], None], problem: str) -> None:
    seen = sound()
    plant(seen)

    found = problems_of(seen)

    assert any(each.startswith(problem) for each in found), found
