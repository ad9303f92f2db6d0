"""Which run of several on one log gets which task, and the messages by which they agree."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.foundation.errors import DecodeError, LogRejected
from headwater.pipelines.running.supervisor import TaskId

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog


GROUP, PROTOCOL_TYPE, PROTOCOL = "__headwater-workers", "headwater", "tasks-1"
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
REBALANCING_PAUSE_S = 0.2


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


@dataclass(frozen=True, slots=True)
class MemberMessage:
    """A member's message when it joins."""

    offer: MemberOffer
    name: str = ""
    """Name of the member for people: its host."""
    instance: str = ""
    """Its group.instance.id."""
    token: str = ""
    """New whenever the offered pipelines change, and with every start. An assignment that names
    another one was made without them."""


@dataclass(frozen=True, slots=True)
class MemberShare:
    """The leader's assignment to a member."""

    tasks: frozenset[TaskId] = frozenset()
    token: str = ""
    members: Mapping[str, str] = field(default_factory=dict)
    """Names of all members by their instance."""
    takes_part: Mapping[str, bool] = field(default_factory=dict)
    """By pipeline: whether this member has the newest version of its file."""


def encode_metadata(said: MemberMessage) -> bytes:
    content = {
        "name": said.name,
        "instance": said.instance,
        "token": said.token,
        "pipelines": {
            name: {"version": offer.version, "tasks": offer.tasks}
            for name, offer in sorted(said.offer.pipelines.items())
        },
        "owned": _list(said.offer.owned),
    }
    return orjson.dumps(content)


def decode_metadata(data: bytes) -> MemberMessage:
    """Reads the metadata. Fields of a newer version are ignored."""
    found = _read(data)
    try:
        pipelines = {
            str(name): PipelineOffer(int(each["version"]), tuple(map(str, each["tasks"])))
            for name, each in found["pipelines"].items()
        }
        offer = MemberOffer(pipelines, _tasks(found["owned"]))
        return MemberMessage(offer, found["name"], found["instance"], found["token"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _strange(error) from None


def encode_share(share: MemberShare) -> bytes:
    content = {
        "tasks": _list(share.tasks),
        "token": share.token,
        "members": share.members,
        "takes_part": share.takes_part,
    }
    return orjson.dumps(content)


def decode_share(data: bytes) -> MemberShare:
    """Reads the share; an empty one where the group has none for this member."""
    if not data:
        return MemberShare()
    found = _read(data)
    try:
        return MemberShare(
            _tasks(found["tasks"]),
            str(found["token"]),
            dict(found["members"]),
            dict(found["takes_part"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _strange(error) from None


async def pipelines_of_members(log: "KafkaLog", *, besides: str = "") -> Mapping[str, str]:
    """Returns the pipelines that runs on this log share, each with the name of such a run; the one
    of the instance `besides` is left out."""
    found = None
    while found is None or found.state in REBALANCING:  # which hides what the members have written
        await asyncio.sleep(0 if found is None else REBALANCING_PAUSE_S)
        try:
            found = await log.groups.describe(GROUP)
        except LogRejected:  # nobody has ever shared it, or we may not know
            return {}
    members = [decode_metadata(each.metadata) for each in found.members if each.metadata]
    others = [each for each in members if not besides or each.instance != besides]
    return {name: each.name for each in others for name in each.offer.pipelines}


def _list(tasks: Iterable[TaskId]) -> list[list[str]]:
    return [list(task) for task in sorted(tasks)]


def _tasks(found: Iterable[Iterable[str]]) -> frozenset[TaskId]:
    return frozenset(TaskId(*each) for each in found)


def _read(data: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _strange(error) from None
    if not isinstance(found, dict):
        raise _strange(TypeError())
    return found


def _strange(error: Exception) -> DecodeError:
    return DecodeError(
        "the group has a member that is not Headwater",
        hint=f"no other program may use the group {GROUP}",
        group=GROUP,
        found=type(error).__name__,
    )
