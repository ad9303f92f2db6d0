"""Proposes in-sync sets to the controller: one request at a time, repeated until the metadata shows
what became of it."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_partition import (
    AlteredPartition,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    InSyncBroker,
)
from headwater.core_log.replication.leader import UNKNOWN, InSyncProposal, Leader

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
RETRY_S = 0.2
"""The pause before the same proposal is sent again."""
LOOK_S = 1.0
"""Interval of the look for followers that lag."""
WAIT_MS = 5_000
"""The controller commits before it answers."""


class OpenProposal(NamedTuple):
    """A leader's proposal that the controller has not decided, as far as is known here."""

    partition: Partition
    leader: Leader
    proposal: InSyncProposal


class InSyncProposals:
    """Sends what the leaders of this broker propose. A leader forgets its proposal when it is
    refused, or when the metadata has another state of its partition; until then it stays open."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._open: dict[Partition, None] = {}
        self._is_due = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [create_task(self._send_on()), create_task(self._look_on())]

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def add(self, partition: Partition) -> None:
        """Called when the partition's leader has made a proposal."""
        self._open[partition] = None
        self._is_due.set()

    def look(self, now_ms: int) -> None:
        """Lets every leader propose to go on without the followers that lag."""
        for partition in self._broker.replicas.led:
            leader = partition.leader
            if not isinstance(leader, Leader) or not partition.is_served:
                continue
            if leader.on_tick(now_ms) is not None:
                self.add(partition)

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._broker.has_short_cuts:
                continue  # there are no followers
            self.look(self._broker.clock.monotonic_ms())

    async def _send_on(self) -> None:
        reason = ""
        while True:
            await self._is_due.wait()
            await asyncio.sleep(0)  # what comes up in one turn of the loop goes together
            self._is_due.clear()
            try:
                await self._send(self._gather())
            except (ConnectionLost, HeadwaterError) as error:
                if str(error) != reason:  # it comes again five times a second
                    logger.info("in-sync sets are not decided yet: %s", error)
                reason = str(error)
            else:
                reason = ""
            if self._gather():  # there is no answer, or the metadata is behind it
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._is_due.wait()
                self._is_due.set()

    def _gather(self) -> Sequence[OpenProposal]:
        found = []
        for partition in list(self._open):
            leader = partition.leader
            if isinstance(leader, Leader) and leader.pending is not None:
                found.append(OpenProposal(partition, leader, leader.pending))
            else:
                del self._open[partition]
        return found

    async def _send(self, proposals: Sequence[OpenProposal]) -> None:
        if not proposals:
            return
        request = self._request(proposals)
        answer = await self._broker.peers.ask_controller(request, wait_ms=WAIT_MS)
        if answer.error_code != ErrorCode.NONE:
            raise LogUnavailable(
                "the controller does not decide", code=ErrorCode(answer.error_code).name
            )
        self._take(proposals, answer)

    def _request(self, proposals: Sequence[OpenProposal]) -> AlterPartitionRequest:
        by_topic = defaultdict[UUID, list[AlteredPartition]](list)
        for partition, _, proposal in proposals:
            epochs = {**proposal.broker_epochs, self._broker.node_id: self._broker.broker_epoch}
            by_topic[partition.topic_id].append(
                AlteredPartition(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        InSyncBroker(broker_id=each, broker_epoch=epochs.get(each, UNKNOWN))
                        for each in sorted(proposal.in_sync)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            topics=[
                AlterPartitionTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic.items()
            ],
        )

    def _take(self, proposals: Sequence[OpenProposal], answer: AlterPartitionResponse) -> None:
        """Only a certain refusal ends a proposal; anything else is told by the metadata."""
        codes = {
            (topic.topic_id, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        for partition, leader, proposal in proposals:
            code = codes.get((partition.topic_id, partition.index))
            if code == ErrorCode.INELIGIBLE_REPLICA:
                leader.on_refused(proposal)
                partition.wake()
