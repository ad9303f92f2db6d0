"""What a transaction's coordinator says to batches that would join it, in the words of Produce."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.produce_frames import ProduceFrame
from headwater.core_log.records.batch_header import BatchHeader

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

ABORTABLE_FROM = 11
IMPLICIT_ADD_FROM = 12
"""From here on a transactional batch adds its partition to the transaction by itself (KIP-890)."""

NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def in_words_of(verdict: ErrorCode, version: int) -> ErrorCode:
    """Clients know no coordinator behind Produce: what passes is told by an error that has them
    send the batch again, and nothing else.
    """
    is_passing = verdict in NOT_NOW or (
        verdict is ErrorCode.CONCURRENT_TRANSACTIONS and version < IMPLICIT_ADD_FROM
    )
    if is_passing:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if verdict is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return verdict


class Verification:
    """Asks the coordinator first, so that no batch joins a transaction that is over."""

    def __init__(
        self,
        broker: "Broker",
        request: ProduceFrame,
        opening: Mapping[int, BatchHeader],
        version: int,
    ) -> None:
        """`opening`: by its place, each batch that would open its producer's transaction."""
        self._request, self._opening, self._version = request, opening, version
        self._coordinator, parts = broker.transactions, request.parts
        first = next(iter(opening.values()))
        self._producer = (first.producer_id, first.producer_epoch)
        self._names = {
            place: TopicPartition(broker.topic_name(parts[place].topic), parts[place].partition)
            for place in opening
        }
        self._may_add = version >= IMPLICIT_ADD_FROM

    def at_once(self) -> list[ErrorCode] | None:
        """None where the coordinator has something to record first."""
        found = self._coordinator.verify_or_add_at_once(
            self._transactional_id, *self._producer, [*self._names.values()], may_add=self._may_add
        )
        return None if found is None else self._verdicts(found)

    async def answer(self) -> list[ErrorCode]:
        """The caller appends before it awaits anything else."""
        return self._verdicts(
            await self._coordinator.verify_or_add(
                self._transactional_id,
                *self._producer,
                [*self._names.values()],
                may_add=self._may_add,
            )
        )

    @property
    def _transactional_id(self) -> str:
        name = self._request.transactional_id
        assert name is not None, "only transactions are verified"
        return name

    def _verdicts(self, answer: Mapping[TopicPartition, ErrorCode]) -> list[ErrorCode]:
        """One for each part of the request."""
        verdicts = [ErrorCode.NONE] * len(self._request.parts)
        for place, header in self._opening.items():
            is_same = (header.producer_id, header.producer_epoch) == self._producer
            verdict = answer[self._names[place]]
            verdict = verdict if is_same else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            verdicts[place] = in_words_of(verdict, self._version)
        return verdicts
