"""A client with a rack reads from the replica that the leader names, and returns to the leader
where that one cannot help."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.core_log.client import KafkaLog, fetcher
from headwater.core_log.model.log import Fetched, FetchLimit, Isolation, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import ScriptedCluster

ORDERS = TopicPartition("orders", 0)
LEADER, FOLLOWER = 1, 2
BATCH = memoryview(bytes(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)])))


class Script:
    """The first broker leads, and sends everybody with a rack to the second."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster(brokers=2)
        self.cluster.leaders["orders"] = LEADER
        self.cluster.versions[FetchRequest.api_key] = (4, 12)  # in which topics have names
        self.refusal: ErrorCode | None = None
        """What the follower answers instead of records, once."""
        self.names = FOLLOWER
        self.cluster.on(FetchRequest, self._fetch)

    def log(self, rack: str) -> KafkaLog:
        return self.cluster.log(rack=rack)

    @property
    def asked(self) -> list[int]:
        return [node for node, _ in self.cluster.requests(FetchRequest)]

    def _fetch(self, node: int, request: Any) -> FetchResponse:
        line: dict[str, Any] = {"records": BATCH}
        if node == LEADER and request.rack_id and self.names:
            line = {"preferred_read_replica": self.names, "records": memoryview(b"")}
        elif node == FOLLOWER and self.refusal is not None:
            line, self.refusal, self.names = {"error_code": self.refusal}, None, 0
        part = PartitionData(partition_index=0, **line)
        return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[part])])


async def read(log: KafkaLog) -> Sequence[Fetched]:
    limit = FetchLimit(wait_ms_max=0)
    return await log.fetch({ORDERS: 0}, limit=limit, isolation=Isolation.COMMITTED)


async def test_the_replica_that_the_leader_names_is_read_at_once_and_again() -> None:
    script = Script()
    log = script.log("b")

    found = [len(await read(log)) for _ in range(2)]

    assert (found, script.asked) == ([1, 1], [LEADER, FOLLOWER, FOLLOWER])


async def test_a_client_without_a_rack_reads_from_the_leader() -> None:
    script = Script()

    assert len(await read(script.log(""))) == 1
    assert script.asked == [LEADER]


@pytest.mark.parametrize("refusal", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.FENCED_LEADER_EPOCH])
async def test_the_leader_is_asked_where_a_replica_cannot_answer(refusal: ErrorCode) -> None:
    script = Script()
    script.refusal = refusal

    assert len(await read(script.log("b"))) == 1
    assert script.asked == [LEADER, FOLLOWER, LEADER]


async def test_a_replica_that_is_gone_is_left_for_the_leader() -> None:
    script = Script()
    log = script.log("b")
    await read(log)
    script.cluster.stop(FOLLOWER)
    script.names = 0

    assert len(await read(log)) == 1
    assert script.asked == [LEADER, FOLLOWER, LEADER]


async def test_the_leader_is_asked_again_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    lease_s = 0.2
    monkeypatch.setattr(fetcher, "LEASE_S", lease_s)
    script = Script()
    log = script.log("b")
    await read(log)
    await asyncio.sleep(lease_s)
    script.names = 0

    await read(log)

    assert script.asked == [LEADER, FOLLOWER, LEADER]


async def test_a_broker_that_has_joined_meanwhile_is_found() -> None:
    script = Script()
    script.names = 0
    log = script.log("b")
    await read(log)
    script.cluster.brokers[3] = "broker3"
    script.names = 3

    assert len(await read(log)) == 1
    assert script.asked == [LEADER, LEADER, LEADER, 3]
