"""Proofs that this broker still leads: answers that somebody decides exactness by wait for one."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from headwater.core_log.broker.connection import Peer
from headwater.core_log.broker.partition import Partition
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker


class LeadershipProofs:
    """Numbers the questions of this broker. A follower that begins a fetch after an answer that has
    left after a question had not heard of another leader then. A fetch that was under way already
    says nothing, so that it is answered at once, and the next one of its connection counts."""

    def __init__(self) -> None:
        self.question = 0
        self._answered: WeakKeyDictionary[Peer, int] = WeakKeyDictionary()

    def note_answer(self, peer: Peer) -> None:
        """Called when the answer to a follower's fetch leaves on its connection."""
        self._answered[peer] = self.question

    def answered_before(self, peer: Peer) -> int:
        """Returns the newest question that a fetch which comes now on this connection proves."""
        return self._answered.get(peer, 0)

    async def confirm(self, partition: Partition) -> None:
        """Returns once it is sure that no other leader of the partition had been elected when this
        was called. Raises `LogUnavailable` if that cannot be proved."""
        if partition.is_replicated:
            self.question += 1
            await partition.wait_proved(self.question)
        else:
            partition.check_led()


async def find_unproved(
    broker: "Broker", partitions: Sequence[TopicPartition]
) -> Collection[TopicPartition]:
    """Asks for a proof of each partition that is led here; returns those without one."""
    led = {
        at: partition
        for at in partitions
        if (partition := broker.find_led(*at)) is not None and partition.is_replicated
    }
    if not led:
        return ()
    confirm = broker.replicas.proofs.confirm
    proofs = await asyncio.gather(*map(confirm, led.values()), return_exceptions=True)
    for proof in proofs:
        if proof is not None and not isinstance(proof, HeadwaterError):
            raise proof
    return [at for at, proof in zip(led, proofs, strict=True) if proof is not None]
