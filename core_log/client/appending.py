"""Appends one sealed batch to the leader of its partition, until the log has it or refuses it."""

from core_log.client.cluster import Cluster
from core_log.client.connection import ConnectionLost
from core_log.client.retrying import TryAgain
from core_log.log import TopicPartition
from core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

ALL_IN_SYNC, LEADER_ONLY, UNANSWERED = -1, 1, 0
BEFORE_IMPLICIT_ADD = 11
"""The last version of Produce in which a transaction names its partitions beforehand (KIP-890)."""


async def append_once(
    cluster: Cluster,
    partition: TopicPartition,
    batch: memoryview,
    *,
    acks: int = ALL_IN_SYNC,
    transactional_id: str | None = None,
    version_max: int | None = None,
) -> int:
    """One attempt; returns the base offset, -1 when no answer was wanted."""
    node = await cluster.leader(partition)
    part = PartitionProduceData(index=partition.partition, records=batch)
    topic_id = cluster.topic_id(partition.topic)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=cluster.settings.request_wait_ms_max,
        topic_data=[
            TopicProduceData(name=partition.topic, topic_id=topic_id, partition_data=[part])
        ],
    )
    try:
        if acks == UNANSWERED:
            await node.tell(request, version_max=version_max)
            return -1
        said = await node.ask(request, version_max=version_max)
    except ConnectionLost:
        cluster.forget_topic(partition.topic)
        raise
    answers = [part for topic in said.responses for part in topic.partition_responses]
    if len(answers) != 1:
        raise TryAgain("the broker did not say what became of the batch")
    cluster.check(answers[0].error_code, partition, answers[0].error_message)
    return answers[0].base_offset


async def append_plainly(
    cluster: Cluster, partition: TopicPartition, batch: memoryview, *, acks: int
) -> int:
    """Without identity a lost answer leads to a second copy: at least once."""

    async def attempt() -> int:
        return await append_once(cluster, partition, batch, acks=acks)

    return await cluster.persist(attempt)
