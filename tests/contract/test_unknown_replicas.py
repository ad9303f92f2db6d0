"""A client that calls itself a replica is refused in Kafka's words, and sees nothing more by it."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from headwater.core_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.builders import START_MS, batch
from tests.contract.foreign_topics import Cluster
from tests.crash.plain_client import Wire

STRANGER = 77
STATE_FROM, TOPIC_IDS_FROM, EPOCHS_FROM = 15, 13, 9
VERSIONS = range(FetchRequest.versions[0], FetchRequest.versions[1] + 1)
MAX_TIMESTAMP, LIST_VERSION = -3, 7


def fetch_of(version: int, topic: str, topic_id: UUID, *, replica_id: int, epoch: int) -> Any:
    part = FetchPartition(
        partition=0,
        fetch_offset=0,
        partition_max_bytes=1 << 20,
        current_leader_epoch=epoch if version >= EPOCHS_FROM else -1,
    )
    named: dict[str, Any] = {"topic": topic}
    if version >= TOPIC_IDS_FROM:
        named = {"topic_id": topic_id}
    who: dict[str, Any] = {"replica_id": replica_id}
    if version >= STATE_FROM:
        who = {"replica_state": ReplicaState(replica_id=replica_id, replica_epoch=-1)}
    return FetchRequest(topics=[FetchTopic(**named, partitions=[part])], max_bytes=1 << 20, **who)


async def told(cluster: Cluster, topic: str, *, epoch: int) -> list[tuple[int, bytes]]:
    """What every version answers to a stranger: the code, and the records."""
    topic_id = UUID(await cluster.log.topic_id(topic))
    host, port = cluster.endpoint.rsplit(":", 1)

    def ask() -> list[tuple[int, bytes]]:
        with Wire((host, int(port))) as wire:
            answers = [
                wire.ask(fetch_of(each, topic, topic_id, replica_id=STRANGER, epoch=epoch), each)
                for each in VERSIONS
            ]
        parts = [answer.responses[0].partitions[0] for answer in answers]
        return [(part.error_code, bytes(part.records or b"")) for part in parts]

    return await asyncio.to_thread(ask)


async def test_an_unknown_replica_is_refused_in_every_version(cluster: Cluster) -> None:
    topic = await cluster.topic("kept")
    await cluster.append(topic, (b"key", b"value"))

    without_epoch = await told(cluster, topic, epoch=-1)
    with_epoch = await told(cluster, topic, epoch=0)

    older = [version < EPOCHS_FROM for version in VERSIONS]
    stranger = (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    newer = (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")
    assert without_epoch == [stranger] * len(VERSIONS)
    assert with_epoch == [stranger if is_old else newer for is_old in older]


async def test_a_stranger_never_hears_of_what_is_not_on_disk(tmp_path: Path) -> None:
    settings = BrokerSettings(data=tmp_path, listen="127.0.0.1:0", flush_wait_ms_max=3_600_000)
    broker = await RunningBroker.start(settings)

    def ask() -> tuple[int, int]:
        with Wire(broker.server.address) as wire:
            wire.create_topic("t", 1, {})
            wire.produce("t", {0: bytes(batch("on disk"))})
            wire.produce("t", {0: bytes(batch("not yet", timestamp_ms=START_MS + 1))}, acks=1)
            part = ListOffsetsPartition(partition_index=0, timestamp=MAX_TIMESTAMP)
            topics = [ListOffsetsTopic(name="t", partitions=[part])]
            strangers = ListOffsetsRequest(replica_id=STRANGER, topics=topics)
            found = wire.ask(strangers, LIST_VERSION).topics[0].partitions[0]
            return found.error_code, found.offset

    found = await asyncio.to_thread(ask)

    assert found == (ErrorCode.NONE, 0)
    await broker.stop()
