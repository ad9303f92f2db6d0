"""A run on a log that others share: a member of the group `__headwater-workers`, which runs the
tasks that the group gives it."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING

from headwater.core_log.client.membership import MembershipTerms
from headwater.core_log.foundation.clock import Clock
from headwater.core_log.foundation.errors import DirectoryInUse, HeadwaterError
from headwater.pipelines.journal.member_topic import MemberTopic
from headwater.pipelines.loops.deliver.quarantine import error_text
from headwater.pipelines.reports import Reporter, StateChanged, TaskState
from headwater.pipelines.running.assignor import (
    GROUP,
    PROTOCOL,
    PROTOCOL_TYPE,
    MemberMessage,
    MemberOffer,
    MemberShare,
    PipelineOffer,
    assign,
    decode_metadata,
    decode_share,
    encode_metadata,
    encode_share,
    hand_out,
)
from headwater.pipelines.running.running_pipelines import RunningPipelines
from headwater.pipelines.running.supervisor import Backoff, RetryPolicy, TaskId

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.file.loader import LoadedPipeline

logger = logging.getLogger(__name__)

RETRIES = RetryPolicy(backoff_ms=500, backoff_ms_max=10_000)


class WorkerGroup:
    """Joins again whenever a member comes, goes, or has ended what others are to run. Exactness
    does not depend on it: who runs a task fences whoever ran it before."""

    def __init__(
        self,
        log: "KafkaLog",
        pipelines: RunningPipelines,
        *,
        instance: str,
        name: str,
        clock: Clock,
        report: Reporter,
        renew: Callable[[float], None] = lambda _: None,
        terms: MembershipTerms | None = None,
    ) -> None:
        """`name` is for people; `renew` is told how long tasks may go on without a word from
        here."""
        self._log, self._pipelines, self._clock, self._report = log, pipelines, clock, report
        self._instance, self._name = instance, name
        self._topic = MemberTopic(log)
        self._newest: set[tuple[str, str]] = set()
        """Versions of files that somebody has asked for while others ran."""
        self._token = ""
        self._offered: Mapping[str, PipelineOffer] | None = None
        self._backoff = Backoff(RETRIES, SystemRandom())
        self._is_leaving, self._late = False, frozenset[str]()
        self._losses, self._is_told = 0, False
        self._work: asyncio.TaskGroup | None = None
        self.share = MemberShare()
        """The last share that the group gave to this member."""
        self._membership = log.membership(
            terms or MembershipTerms(GROUP, PROTOCOL_TYPE, PROTOCOL, instance),
            divide,
            on_lost=self._on_lost,
            on_heard=renew,
        )

    @property
    def log(self) -> "KafkaLog":
        return self._log

    @property
    def instance(self) -> str:
        return self._instance

    @property
    def generation(self) -> int:
        return self._membership.generation

    @property
    def topic(self) -> MemberTopic:
        return self._topic

    def offer(self, loaded: "Sequence[LoadedPipeline]" = (), *, is_newest: bool = False) -> None:
        """Tells the group what can be run here now. With `is_newest` these files replace what
        others run, also if the log knows them from before."""
        if is_newest:
            self._newest |= {(each.name, each.digest) for each in loaded}
        self._membership.wants_join.set()

    def end_offers(self) -> None:
        """Nothing new begins here from now on."""
        self._is_leaving = True

    async def run(self) -> None:
        """Runs until it is cancelled, then leaves the group; all tasks should have ended."""
        try:
            async with asyncio.TaskGroup() as work:
                self._work = work
                work.create_task(self._membership.beat())
                while True:
                    await self._join()
                    await self._membership.wants_join.wait()
        finally:
            self._work = None
            with suppress(HeadwaterError, TimeoutError):
                async with asyncio.timeout(5):
                    await self._membership.leave("the run has ended")
            await self._log.close()

    async def _join(self) -> None:
        """One generation: returns when its tasks have been told to start."""
        while True:
            try:
                share = decode_share(await self._membership.join(await self._metadata()))
                losses = self._losses
                is_due = await self._is_outdated(share)
                break
            except DirectoryInUse:
                raise
            except HeadwaterError as error:
                await self._wait(error)
        self._backoff.reset()
        if losses != self._losses:
            return  # it has come and gone meanwhile
        self.share = share
        if is_due:
            self._offered = None
            self._membership.wants_join.set()
        self._tell_late(share.takes_part)
        if len(share.members) > 1:
            self._tell_local()
        for _, tasks in self._pipelines.list_shared():
            for task in tasks:
                if task not in self._pipelines.here and task not in share.tasks:
                    self._pipelines.leave(task)
        assert self._work is not None, "members join while the group runs"
        self._work.create_task(self._take(share.tasks))

    async def _is_outdated(self, share: MemberShare) -> bool:
        """Whether the group has not heard what is offered here now: it kept what this member's
        former life had, or another member has made its version of a file the newest meanwhile."""
        if share.token != self._token:
            return not self._is_leaving
        return not all(share.takes_part.values()) and await self._find_offers() != self._offered

    async def _take(self, tasks: frozenset[TaskId]) -> None:
        is_revoking = bool(self._pipelines.here - tasks)
        await self._pipelines.take(tasks)
        if is_revoking:
            self._membership.wants_join.set()

    def _on_lost(self, reason: str) -> None:
        self._losses += 1
        if self._pipelines.here:
            logger.warning("the tasks of this run end, since they may run elsewhere: %s", reason)
        if self._work is not None:
            self._work.create_task(self._lose())

    async def _lose(self) -> None:
        await self._pipelines.lose()
        self._membership.wants_join.set()

    async def _metadata(self) -> bytes:
        pipelines = await self._find_offers()
        if pipelines != self._offered:
            self._offered, self._token = pipelines, secrets.token_hex(8)
        offer = MemberOffer(pipelines, self._pipelines.here)
        return encode_metadata(MemberMessage(offer, self._name, self._instance, self._token))

    async def _find_offers(self) -> Mapping[str, PipelineOffer]:
        found = {}
        for loaded, tasks in [] if self._is_leaving else self._pipelines.list_shared():
            file = (loaded.name, loaded.digest)
            version = await self._topic.version(
                *file, is_newest=file in self._newest, now_ms=self._clock.now_ms()
            )
            self._newest.discard(file)
            found[loaded.name] = PipelineOffer(version, tuple(task.name for task in tasks))
        return found

    async def _wait(self, error: HeadwaterError) -> None:
        """The tasks wait for the group, which is where the log is."""
        reason, delay_ms = error_text(error, ""), self._backoff.next_ms()
        logger.warning(
            "the run joins the others later and tries again in %.1f s: %s", delay_ms / 1_000, reason
        )
        for _, tasks in self._pipelines.list_shared():
            for task in tasks:
                if task not in self._pipelines.here:
                    self._report(StateChanged(*task, "", TaskState.RETRYING, reason))
        await asyncio.sleep(delay_ms / 1_000)

    def _tell_local(self) -> None:
        """Once: nobody can see from here whether a path is the same place on each machine."""
        if self._is_told:
            return
        self._is_told = True
        for loaded, _ in self._pipelines.list_shared():
            for part in loaded.sinks:
                if path := getattr(part.settings, "local_path", ""):
                    logger.warning(
                        "other runs may take over %s/%s: its path must be the same place on each"
                        " machine (path=%s)",
                        loaded.name,
                        part.name,
                        path,
                    )

    def _tell_late(self, takes_part: Mapping[str, bool]) -> None:
        late = frozenset(name for name, does in takes_part.items() if not does)
        for name in sorted(late - self._late):
            logger.warning(
                "another run has a newer version of the file of %s: this one runs none of its"
                " tasks; headwater run with the new file",
                name,
            )
        self._late = late


def divide(metadata: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The leader divides the tasks of the group."""
    members = {member: decode_metadata(each) for member, each in metadata.items()}
    offers = {member: each.offer for member, each in members.items()}
    names = {each.instance or member: each.name for member, each in members.items()}
    newest: dict[str, int] = {}
    for offer in offers.values():
        for name, pipeline in offer.pipelines.items():
            newest[name] = max(newest.get(name, 0), pipeline.version)
    return {
        member: encode_share(
            MemberShare(
                tasks,
                members[member].token,
                names,
                {
                    name: pipeline.version == newest[name]
                    for name, pipeline in offers[member].pipelines.items()
                },
            )
        )
        for member, tasks in hand_out(offers, assign(offers)).items()
    }
