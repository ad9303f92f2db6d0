"""Messages between the members of `__headwater-workers`, through the group's coordinator."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.foundation.errors import DecodeError, LogRejected
from headwater.pipelines.running.assignor import MemberOffer, PipelineOffer
from headwater.pipelines.running.supervisor import TaskId

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

GROUP, PROTOCOL_TYPE, PROTOCOL = "__headwater-workers", "headwater", "tasks-1"
REBALANCING = ("PreparingRebalance", "CompletingRebalance")
REBALANCING_PAUSE_S = 0.2


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
