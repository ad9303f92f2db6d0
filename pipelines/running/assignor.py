"""Which run of several on one log gets which task: a pure function of what each of them said."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headwater.pipelines.running.supervisor import TaskId


@dataclass(frozen=True, slots=True)
class PipelineOffer:
    """A pipeline that a member can run."""

    version: int
    """Orders the versions of its file; the newest one counts."""
    tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemberOffer:
    """The tasks that a member can run, and those that it runs."""

    pipelines: Mapping[str, PipelineOffer] = field(default_factory=dict)
    owned: frozenset[TaskId] = frozenset()
    """Tasks that run there, or have not ended yet."""


Shares = Mapping[str, frozenset[TaskId]]
"""The tasks of each member, by its id."""


def assign(members: Mapping[str, MemberOffer]) -> Shares:
    """Every task of the newest version of each file has one member with that version. A task stays
    where it is, unless its member has two more than another one that could run it."""
    able = _find_able(members)
    loads = Counter(dict.fromkeys(members, 0))
    places: dict[TaskId, str] = {}
    for task in sorted(able):
        owners = [each for each in able[task] if task in members[each].owned]
        if owners:
            places[task] = min(owners)
            loads[places[task]] += 1
    for task in sorted(able.keys() - places.keys()):
        places[task] = _least(able[task], loads)
        loads[places[task]] += 1
    while (move := next(_moves(able, places, loads), None)) is not None:
        task, to = move
        loads[places[task]] -= 1
        loads[to] += 1
        places[task] = to
    return {
        member: frozenset(task for task, place in places.items() if place == member)
        for member in members
    }


def hand_out(members: Mapping[str, MemberOffer], wanted: Shares) -> Shares:
    """Returns what each member may run in this generation. A task that still runs elsewhere is
    taken there first; its new member gets it in the next generation."""
    owners = Counter(task for member in members.values() for task in member.owned)
    return {
        member: frozenset(
            task for task in tasks if task in members[member].owned or not owners[task]
        )
        for member, tasks in wanted.items()
    }


def _find_able(members: Mapping[str, MemberOffer]) -> Mapping[TaskId, list[str]]:
    """Returns the members that can run each task."""
    newest: dict[str, int] = {}
    for member in members.values():
        for name, offer in member.pipelines.items():
            newest[name] = max(newest.get(name, offer.version), offer.version)
    able: dict[TaskId, list[str]] = {}
    for member_id in sorted(members):
        for name, offer in members[member_id].pipelines.items():
            if offer.version == newest[name]:
                for task in offer.tasks:
                    able.setdefault(TaskId(name, task), []).append(member_id)
    return able


def _moves(
    able: Mapping[TaskId, list[str]], places: Mapping[TaskId, str], loads: Counter[str]
) -> Iterator[tuple[TaskId, str]]:
    """Yields tasks whose member has two more than another one, the most loaded member's first."""
    for task in sorted(able, key=lambda each: (-loads[places[each]], each)):
        least = _least(able[task], loads)
        if loads[places[task]] - loads[least] > 1:
            yield task, least


def _least(able: list[str], loads: Counter[str]) -> str:
    return min(able, key=lambda member: (loads[member], member))
