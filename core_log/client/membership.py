"""A member of a classic consumer group, as Kafka Connect's workers are: it joins generations, sends
heartbeats, and knows how long it may act as a member."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.core_log.client.coordinators import Coordinates, Coordinators
from headwater.core_log.foundation.errors import DirectoryInUse, HeadwaterError, LogUnavailable
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.core_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.core_log.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger = logging.getLogger(__name__)

E = ErrorCode
NO_MEMBER, NO_GENERATION = "", -1
OF_THE_COORDINATOR = frozenset(
    {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Errors that say nothing of the member."""
JOIN_AGAIN = frozenset({E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION})
RETRY_S = 0.5
"""Pause after a heartbeat without an answer."""
AGAIN_S = 0.02
"""Pause between two joins: members that form a generation join again and again until all have."""

Assign = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""From the metadata of all members to the assignment of each, by member id. The group's leader
calls it."""


@dataclass(frozen=True, slots=True)
class MembershipTerms:
    group: str
    protocol_type: str
    protocol: str
    instance_id: str | None = None
    """A name that stays over restarts: who returns within the session gets what it had (KIP-345).
    """
    session_ms: int = 10_000
    """The group goes on without a member that it has not heard for this long."""
    heartbeat_ms: int = 3_000

    @property
    def lease_s(self) -> float:
        """How long a member may act after a heartbeat that was answered: it stops before the
        others may go on without it."""
        return self.session_ms * 2 / 3 / 1000


class Membership:
    """`join` forms a generation, `beat` keeps the membership alive beside it. When the lease is
    over, `on_lost` is called: the member must not act before it has joined again."""

    def __init__(
        self,
        coordinators: Coordinators,
        terms: MembershipTerms,
        assign: Assign,
        *,
        on_lost: Callable[[str], None],
        on_heard: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`on_lost` is told why, `on_heard` how many seconds the lease lasts from now on."""
        self._coordinators, self._terms, self._assign = coordinators, terms, assign
        self._on_lost, self._on_heard = on_lost, on_heard
        self._member_id, self._generation = NO_MEMBER, NO_GENERATION
        self._is_joining = False
        self._fenced: HeadwaterError | None = None
        self._lease: asyncio.TimerHandle | None = None
        self.wants_join = asyncio.Event()
        """Set when the group forms another generation, or is to."""

    @property
    def generation(self) -> int:
        return self._generation

    async def join(self, metadata: bytes) -> bytes:
        """Joins the next generation; returns the assignment of this member."""
        self._is_joining = True
        try:
            while True:
                self.wants_join.clear()
                if self._fenced is not None:
                    raise self._fenced
                joined = await self._join(metadata)
                assignment = None if joined is None else await self._sync(joined)
                if assignment is not None:
                    return assignment
                await asyncio.sleep(AGAIN_S)
        finally:
            self._is_joining = False

    async def beat(self) -> None:
        """Runs until it is cancelled."""
        while True:
            pause_s = self._terms.heartbeat_ms / 1000
            if self._generation != NO_GENERATION:
                try:
                    await self._beat_once()
                except HeadwaterError as error:
                    logger.debug("a heartbeat was not answered: %s", error)
                    pause_s = min(pause_s, RETRY_S)
            await asyncio.sleep(pause_s)

    async def leave(self, reason: str) -> None:
        """Tells the group, so that nobody waits for the session's end."""
        member_id, self._member_id, self._generation = self._member_id, NO_MEMBER, NO_GENERATION
        self._end_lease()
        if member_id == NO_MEMBER:
            return
        leaving = MemberIdentity(
            member_id=member_id, group_instance_id=self._terms.instance_id, reason=reason
        )
        request = LeaveGroupRequest(group_id=self._terms.group, members=[leaving])
        await self._coordinators.ask(
            Coordinates.GROUP,
            self._terms.group,
            request,
            codes=lambda said: _of_coordinator(said.error_code),
            for_ms=self._terms.heartbeat_ms,
        )

    async def _join(self, metadata: bytes) -> JoinGroupResponse | None:
        """Returns None if the join is to be repeated."""
        terms = self._terms
        request = JoinGroupRequest(
            group_id=terms.group,
            session_timeout_ms=terms.session_ms,
            rebalance_timeout_ms=terms.session_ms,
            member_id=self._member_id,
            group_instance_id=terms.instance_id,
            protocol_type=terms.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=terms.protocol, metadata=metadata)],
        )
        said = await self._coordinators.ask(
            Coordinates.GROUP,
            terms.group,
            request,
            codes=lambda said: _of_coordinator(said.error_code),
            wait_ms=2 * terms.session_ms,
        )
        code = ErrorCode(said.error_code)
        if code is E.MEMBER_ID_REQUIRED:
            self._member_id = said.member_id
            return None
        self._check(code)
        if code is not E.NONE:
            return None
        self._member_id, self._generation = said.member_id, said.generation_id
        return said

    async def _sync(self, joined: JoinGroupResponse) -> bytes | None:
        """Returns None if the group has begun another generation meanwhile."""
        assignments: Sequence[SyncGroupRequestAssignment] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            metadata = {each.member_id: each.metadata for each in joined.members}
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in self._assign(metadata).items()
            ]
        request = SyncGroupRequest(
            group_id=self._terms.group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            group_instance_id=self._terms.instance_id,
            protocol_type=self._terms.protocol_type,
            protocol_name=self._terms.protocol,
            assignments=assignments,
        )
        asked_s = asyncio.get_running_loop().time()
        said: SyncGroupResponse = await self._coordinators.ask(
            Coordinates.GROUP,
            self._terms.group,
            request,
            codes=lambda said: _of_coordinator(said.error_code),
            wait_ms=2 * self._terms.session_ms,
        )
        code = ErrorCode(said.error_code)
        self._check(code)
        if code is not E.NONE:
            return None
        self._hear(asked_s)
        return said.assignment

    def _check(self, code: ErrorCode) -> None:
        """Raises what repeating does not cure."""
        if code is E.NONE or code in JOIN_AGAIN:
            return
        if code is E.UNKNOWN_MEMBER_ID:
            self._lose("the group has gone on without this member")
        elif code is E.FENCED_INSTANCE_ID:
            self._fence()
            assert self._fenced is not None, "a fenced member knows that it is"
            raise self._fenced
        else:
            raise LogUnavailable(code.meaning, error=code.name, group=self._terms.group)

    async def _beat_once(self) -> None:
        asked_s, generation = asyncio.get_running_loop().time(), self._generation
        request = HeartbeatRequest(
            group_id=self._terms.group,
            generation_id=generation,
            member_id=self._member_id,
            group_instance_id=self._terms.instance_id,
        )
        said = await self._coordinators.ask(
            Coordinates.GROUP,
            self._terms.group,
            request,
            codes=lambda said: _of_coordinator(said.error_code),
            for_ms=0,
        )
        code = ErrorCode(said.error_code)
        if generation != self._generation:
            return  # it is about a generation before
        if code in (E.NONE, E.REBALANCE_IN_PROGRESS):
            self._hear(asked_s)
        if code in JOIN_AGAIN and not self._is_joining:
            self.wants_join.set()
        elif code is E.UNKNOWN_MEMBER_ID:
            self._lose("the group has gone on without this member")
        elif code is E.FENCED_INSTANCE_ID:
            self._fence()

    def _hear(self, asked_s: float) -> None:
        """The lease counts from the question: the answer may have lain here for long."""
        self._end_lease()
        loop = asyncio.get_running_loop()
        ends_s = asked_s + self._terms.lease_s
        self._lease = loop.call_at(ends_s, self._expire)
        self._on_heard(max(ends_s - loop.time(), 0.0))

    def _expire(self) -> None:
        self._lease = None
        self._on_lost("heartbeats were not answered in time")
        self.wants_join.set()

    def _lose(self, reason: str) -> None:
        self._member_id, self._generation = NO_MEMBER, NO_GENERATION
        self._end_lease()
        self._on_lost(reason)
        self.wants_join.set()

    def _fence(self) -> None:
        self._fenced = DirectoryInUse(
            "another process is the same member of the group",
            hint="a copied data directory? each machine needs one of its own",
            group=self._terms.group,
            instance=self._terms.instance_id,
        )
        self._lose(str(self._fenced))

    def _end_lease(self) -> None:
        if self._lease is not None:
            self._lease.cancel()
            self._lease = None


def _of_coordinator(code: int) -> list[int]:
    return [code] if code in OF_THE_COORDINATOR else []
