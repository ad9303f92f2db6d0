"""Whatever members come, go and edit their files, each task ends up with one of them, and moves
only where that makes the shares more even."""

from collections.abc import Mapping
from random import Random

import pytest

from headwater.pipelines.running.assignor import (
    MemberOffer,
    PipelineOffer,
    Shares,
    assign,
    hand_out,
)
from headwater.pipelines.running.supervisor import TaskId

SOURCE, ONE, TWO = (TaskId("shop", name) for name in ("source", "one", "two"))


def offering(*owned: TaskId, version: int = 1, tasks: tuple[str, ...] = ()) -> MemberOffer:
    offer = PipelineOffer(version, tasks or ("source", "one", "two"))
    return MemberOffer({"shop": offer}, frozenset(owned))


def test_the_only_member_runs_everything() -> None:
    assert assign({"a": offering()}) == {"a": {SOURCE, ONE, TWO}}


def test_a_newcomer_gets_its_share_and_nothing_else_moves() -> None:
    shares = assign({"a": offering(SOURCE, ONE, TWO), "b": offering()})

    assert sorted(map(len, shares.values())) == [1, 2]
    assert shares["a"] < {SOURCE, ONE, TWO}


def test_a_task_is_taken_from_its_member_before_another_one_gets_it() -> None:
    members = {"a": offering(SOURCE, ONE, TWO), "b": offering()}
    wanted = assign(members)
    moved = next(iter(wanted["b"]))

    first = hand_out(members, wanted)
    second_members = {"a": offering(*first["a"]), "b": offering()}
    second = hand_out(second_members, assign(second_members))

    assert moved not in first["a"]
    assert first["b"] == frozenset()
    assert second["b"] == {moved}


def test_tasks_of_a_member_that_is_gone_go_to_the_others() -> None:
    shares = assign({"b": offering(TWO), "c": offering()})

    assert TWO in shares["b"]
    assert shares["b"] | shares["c"] == {SOURCE, ONE, TWO}


def test_only_members_with_the_newest_version_of_the_file_run_its_tasks() -> None:
    shares = assign({"a": offering(SOURCE, ONE, TWO), "b": offering(version=7)})

    assert shares == {"a": frozenset(), "b": {SOURCE, ONE, TWO}}


def test_a_version_whose_members_are_gone_no_longer_counts() -> None:
    assert assign({"a": offering(version=3), "b": offering(version=2)})["b"] == frozenset()
    assert assign({"b": offering(version=2)})["b"] == {SOURCE, ONE, TWO}


def test_a_task_that_two_members_have_stays_with_one_and_is_taken_from_the_other() -> None:
    members = {"a": offering(ONE), "b": offering(ONE, TWO)}
    given = hand_out(members, assign(members))

    assert sum(ONE in tasks for tasks in given.values()) == 1


def test_members_with_other_pipelines_get_nothing_of_this_one() -> None:
    other = MemberOffer({"other": PipelineOffer(5, ("source",))})

    shares = assign({"a": offering(), "b": other})

    assert shares == {"a": {SOURCE, ONE, TWO}, "b": {TaskId("other", "source")}}


@pytest.mark.slow
def test_no_task_has_two_members_in_any_history_and_soon_each_has_one() -> None:
    for seed in range(300):
        a_history(Random(seed))


def a_history(random: Random) -> None:
    """Members come, go, get new files and stop tasks late; then all is quiet."""
    newest, owned = 1, dict[str, frozenset[TaskId]]()
    offers = dict[str, Mapping[str, PipelineOffer]]()
    for _ in range(40):
        change = random.random()
        if change < 0.3 or not offers:
            name = f"m{random.randrange(6)}"
            owned.setdefault(name, frozenset())
            offers[name] = an_offer(random, newest)
        elif change < 0.5:
            gone = random.choice(sorted(offers))
            del offers[gone], owned[gone]
        elif change < 0.6:
            newest += 1
            offers[random.choice(sorted(offers))] = an_offer(random, newest)
        if offers:
            a_generation(random, offers, owned)
    if not offers:
        return
    for _ in range(4):
        before = dict(owned)
        a_generation(None, offers, owned)
    assert owned == before, "nothing moves without a reason"
    loads = {member: len(tasks) for member, tasks in owned.items()}
    for tasks in owned.values():
        for task in tasks:
            able = [each for each in offers if can(offers, each, task)]
            assert max(loads[each] for each in able if task in owned[each]) <= 1 + min(
                loads[each] for each in able
            )
    wanted = {
        TaskId(name, task)
        for offer in offers.values()
        for name, each in offer.items()
        for task in each.tasks
        if each.version == newest_of(offers, name)
    }
    assert frozenset().union(*owned.values()) == wanted


def a_generation(
    random: Random | None,
    offers: Mapping[str, Mapping[str, PipelineOffer]],
    owned: dict[str, frozenset[TaskId]],
) -> None:
    members = {each: MemberOffer(offers[each], owned[each]) for each in offers}
    given: Shares = hand_out(members, assign(members))
    running = [task for tasks in given.values() for task in tasks]
    assert len(running) == len(set(running)), "a task was given to two"
    for member in offers:
        stopping = owned[member] - given[member]
        late = {task for task in stopping if random is not None and random.random() < 0.4}
        for task in given[member] - owned[member]:
            others = [each for each in offers if each != member]
            assert not any(task in members[each].owned for each in others), "it still ran elsewhere"
        owned[member] = given[member] | late


def an_offer(random: Random, version: int) -> Mapping[str, PipelineOffer]:
    names = random.sample(["p", "q", "r"], random.randrange(1, 4))
    return {
        name: PipelineOffer(version if name == "p" else 1, ("source", "one", "two", "three"))
        for name in names
    }


def newest_of(offers: Mapping[str, Mapping[str, PipelineOffer]], name: str) -> int:
    return max(each[name].version for each in offers.values() if name in each)


def can(offers: Mapping[str, Mapping[str, PipelineOffer]], member: str, task: TaskId) -> bool:
    offer = offers[member].get(task.pipeline)
    return offer is not None and offer.version == newest_of(offers, task.pipeline)
