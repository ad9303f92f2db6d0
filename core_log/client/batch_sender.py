"""Appends sealed batches to the leaders of their partitions, until the log has or refuses them."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.gather import together
from headwater.core_log.client.producer_sequences import BatchResult, Sealed
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.links.connection import ConnectionLost, RetriableFailure
from headwater.core_log.links.node import Node
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

ALL_IN_SYNC, UNANSWERED = -1, 0
BEFORE_IMPLICIT_ADD = 11
"""The last version of Produce in which a transaction names its partitions beforehand (KIP-890)."""


async def append_once(
    cluster: Cluster,
    batches: Sealed,
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
    version_max: int | None = None,
) -> Mapping[TopicPartition, BatchResult]:
    """Makes one attempt, with one request per broker that leads some of the partitions. The base
    offset is -1 if no answer was requested."""

    async def append_to(
        node: Node, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, BatchResult]:
        theirs = {partition: batches[partition] for partition in partitions}
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=cluster.settings.request_wait_ms_max,
            topic_data=_topic_data(cluster, theirs),
        )
        try:
            if acks == UNANSWERED:
                await node.tell(request, version_max=version_max)
                return dict.fromkeys(theirs, -1)
            said = await node.ask(request, version_max=version_max)
        except ConnectionLost as lost:
            for topic, _ in theirs:
                cluster.forget_topic(topic)
            return dict.fromkeys(theirs, lost)
        return _outcomes(cluster, request, said)

    leaders = (await cluster.leaders(batches)).items()
    outcomes: dict[TopicPartition, BatchResult] = {}
    for each in await together([append_to(*leader) for leader in leaders]):
        outcomes |= each
    return outcomes


async def append_plainly(
    cluster: Cluster, partition: TopicPartition, batch: memoryview, *, acks: int
) -> int:
    """Appends without a producer id: a lost answer leads to a second copy (at least once)."""

    async def attempt() -> int:
        outcomes = await append_once(cluster, {partition: batch}, acks=acks)
        outcome = outcomes[partition]
        if isinstance(outcome, int):
            return outcome
        raise outcome

    return await cluster.persist(attempt)


def _topic_data(cluster: Cluster, batches: Sealed) -> list[TopicProduceData]:
    topics: dict[str, list[PartitionProduceData]] = {}
    for (topic, partition), batch in batches.items():
        part = PartitionProduceData(index=partition, records=batch)
        topics.setdefault(topic, []).append(part)
    return [
        TopicProduceData(name=topic, topic_id=cluster.topic_id(topic), partition_data=parts)
        for topic, parts in topics.items()
    ]


def _outcomes(
    cluster: Cluster, asked: ProduceRequest, said: ProduceResponse
) -> dict[TopicPartition, BatchResult]:
    names: dict[str | UUID, str] = {}  # newer brokers answer by id, without the name
    found: dict[TopicPartition, BatchResult] = {}
    for topic in asked.topic_data:
        names[topic.name] = names[topic.topic_id] = topic.name
        for part in topic.partition_data:
            found[TopicPartition(topic.name, part.index)] = RetriableFailure(
                "the broker's answer has no result for the batch"
            )
    for answered in said.responses:
        name = names.get(answered.name or answered.topic_id)
        if name is None:
            continue
        for answer in answered.partition_responses:
            partition = TopicPartition(name, answer.index)
            try:
                cluster.check(answer.error_code, partition, answer.error_message)
                found[partition] = answer.base_offset
            except (RetriableFailure, HeadwaterError) as refusal:
                found[partition] = refusal
    return found
