"""The client finds whoever leads, follows when leaders change, and gives up within its bounds."""

import asyncio
import logging
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headwater.core_log.client import KafkaLog, retry_policy
from headwater.core_log.client import cluster as client_cluster
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.errors import ConfigError, LogRejected, LogUnavailable
from headwater.core_log.links import rpc
from headwater.core_log.links.connection import Channel
from headwater.core_log.links.node import open_link
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headwater.core_log.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.core_log.protocol.messages.heartbeat import HeartbeatRequest
from headwater.core_log.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.core_log.protocol.messages.list_offsets import ListOffsetsRequest
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import NEVER, ScriptedCluster

ORDERS, ORDERS_ID = TopicPartition("orders", 0), UUID(int=7)


def batch() -> Batch:
    return Batch(bytearray(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)])), 1)


def produced(code: int = 0, offset: int = 0) -> ProduceResponse:
    part = PartitionProduceResponse(index=0, error_code=code, base_offset=offset)
    return ProduceResponse(
        responses=[TopicProduceResponse(name="orders", partition_responses=[part])]
    )


def led_by(cluster: ScriptedCluster, leader: int) -> None:
    """Brokers other than the leader say that they are not."""

    def produce(node: int, request: ProduceRequest) -> ProduceResponse:
        if cluster.leaders["orders"] != node:
            return produced(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        return produced(offset=7)

    cluster.leaders["orders"] = leader
    cluster.on(ProduceRequest, produce)


async def test_the_leader_is_asked_and_nobody_else() -> None:
    cluster = ScriptedCluster(brokers=3)
    led_by(cluster, 2)

    offset = await cluster.log().append(ORDERS, batch())

    assert offset == 7
    assert [node for node, _ in cluster.requests(ProduceRequest)] == [2]


async def test_a_new_leader_is_found_when_the_old_one_steps_back() -> None:
    cluster = ScriptedCluster(brokers=3)
    led_by(cluster, 2)
    log = cluster.log()
    await log.append(ORDERS, batch())

    cluster.leaders["orders"] = 3
    await log.append(ORDERS, batch())

    assert [node for node, _ in cluster.requests(ProduceRequest)] == [2, 2, 3]


async def test_a_new_leader_is_found_when_the_old_one_is_gone() -> None:
    cluster = ScriptedCluster(brokers=3)
    led_by(cluster, 2)
    log = cluster.log()
    await log.append(ORDERS, batch())

    cluster.stop(2)
    cluster.leaders["orders"] = 1
    await log.append(ORDERS, batch())

    assert [node for node, _ in cluster.requests(ProduceRequest)] == [2, 1]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "OVERDUE_S", 0.01)
    monkeypatch.setattr(client_cluster, "INQUIRY_S", 0.01)


class SilentLeader(ScriptedCluster):
    """Broker 2 leads, and stands still."""

    def __init__(self) -> None:
        super().__init__(brokers=3)
        self.leaders["orders"] = 2
        self.is_asked, self.is_inquired = asyncio.Event(), asyncio.Event()
        self.on(ProduceRequest, self._produce)

    def _produce(self, node: int, _: ProduceRequest) -> object:
        self.is_asked.set()
        return NEVER if node == 2 else produced(offset=7)

    def _metadata(self, node: int, request: MetadataRequest) -> Any:
        if len(self.requests(MetadataRequest)) > 4:
            self.is_inquired.set()
        return super()._metadata(node, request)

    def append(self) -> "asyncio.Task[int]":
        log = self.log(request_wait_ms_max=60_000, retry_for_ms=60_000)
        return asyncio.create_task(log.append(ORDERS, batch()))


@pytest.mark.usefixtures("impatient")
async def test_a_silent_broker_is_left_once_the_others_have_fenced_it() -> None:
    cluster = SilentLeader()
    appending = cluster.append()
    await cluster.is_asked.wait()

    del cluster.brokers[2]
    cluster.leaders["orders"] = 3

    assert await appending == 7
    assert [node for node, _ in cluster.requests(ProduceRequest)] == [2, 3]


@pytest.mark.usefixtures("impatient")
async def test_a_silent_broker_that_is_still_in_the_cluster_is_waited_for() -> None:
    cluster = SilentLeader()
    appending = cluster.append()

    await cluster.is_inquired.wait()

    assert not appending.done()
    assert [node for node, _ in cluster.requests(ProduceRequest)] == [2]
    assert all(channel.is_open for channel in cluster.channels)
    appending.cancel()


async def test_a_coordinator_that_is_cut_off_from_the_others_is_left() -> None:
    cluster = ScriptedCluster(brokers=3)

    def find(node: int, _: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = 1 if node == 1 else 3
        return FindCoordinatorResponse(node_id=found, host=f"broker{found}", port=9092)

    def metadata(node: int, request: MetadataRequest) -> Any:
        said = cluster._metadata(node, request)
        return said if node == 1 else replace(said, brokers=said.brokers[1:])

    def identify(node: int, _: InitProducerIdRequest) -> InitProducerIdResponse:
        if node == 1:
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    cluster.on(FindCoordinatorRequest, find)
    cluster.on(MetadataRequest, metadata)
    cluster.on(InitProducerIdRequest, identify)

    await cluster.log().writer("w")

    assert [node for node, _ in cluster.requests(InitProducerIdRequest)][-2:] == [1, 3]


class Outdated(ScriptedCluster):
    """Broker 3 of three leads in epoch 5; some tell the leader of epoch 4, broker 2, after a
    while."""

    def __init__(self, *outdated: int) -> None:
        super().__init__(brokers=3)
        self.leaders["orders"] = 3
        self._will_be, self.outdated = outdated, set[int]()
        self.on(MetadataRequest, self.tell)
        part = PartitionProduceResponse(index=0, base_offset=7)
        topic = TopicProduceResponse(topic_id=ORDERS_ID, name="orders", partition_responses=[part])
        self.on(ProduceRequest, lambda node, request: ProduceResponse(responses=[topic]))

    def tell(self, node: int, request: MetadataRequest) -> Any:
        said = self._metadata(node, request)
        leader, epoch = (2, 4) if node in self.outdated else (3, 5)
        topics = [
            replace(
                each,
                topic_id=ORDERS_ID,
                partitions=[replace(each.partitions[0], leader_id=leader, leader_epoch=epoch)],
            )
            for each in said.topics
        ]
        return replace(said, topics=topics)

    async def append_after(self) -> int:
        """Appends once they are outdated; returns who is asked first."""
        log = self.log()
        await log.append(ORDERS, batch())
        self.outdated |= {*self._will_be}
        self.asked.clear()
        await log.partition_count("orders")  # asks the cluster anew
        await log.append(ORDERS, batch())
        return self.requests(ProduceRequest)[0][0]


async def test_an_older_leader_is_not_taken_from_a_broker_that_lags() -> None:
    cluster = Outdated(3)

    assert await cluster.append_after() == 3

    assert [node for node, _ in cluster.requests(MetadataRequest)] == [3, 1]


async def test_a_newer_leader_stays_known_while_nobody_else_answers() -> None:
    cluster = Outdated(3, 2)
    cluster.stop(2)

    def tell(node: int, request: MetadataRequest) -> Any:
        return NEVER if cluster.outdated and node != 3 else cluster.tell(node, request)

    cluster.on(MetadataRequest, tell)

    assert await cluster.append_after() == 3


async def test_an_older_leader_is_taken_when_all_brokers_tell_it() -> None:
    """As after a copy of the log was restored."""
    cluster = Outdated(1, 2, 3)

    assert await cluster.append_after() == 2


async def test_knowledge_of_leaders_is_not_asked_for_again_without_need() -> None:
    cluster = ScriptedCluster()
    led_by(cluster, 1)
    log = cluster.log()

    for _ in range(5):
        await log.append(ORDERS, batch())

    assert len(cluster.requests(MetadataRequest)) == 1


async def test_any_broker_of_the_bootstrap_will_do() -> None:
    cluster = ScriptedCluster(brokers=3)
    led_by(cluster, 3)
    cluster.stop(1)
    cluster.stop(2)

    assert await cluster.log().append(ORDERS, batch()) == 7


async def test_a_broker_that_takes_connections_and_serves_nobody_holds_up_no_client() -> None:
    """As one does that is still starting."""
    cluster = ScriptedCluster(brokers=2)
    led_by(cluster, 2)
    answer = cluster._metadata
    cluster.on(MetadataRequest, lambda node, request: None if node == 1 else answer(node, request))

    assert await cluster.log().append(ORDERS, batch()) == 7


async def test_a_cluster_that_is_down_is_unavailable_once_patience_ends() -> None:
    cluster = ScriptedCluster()
    cluster.stop(1)

    with pytest.raises(LogUnavailable, match="connection refused"):
        await cluster.log(retry_for_ms=20).append(ORDERS, batch())


async def test_a_cluster_that_never_answered_is_told_soon_with_what_each_address_says() -> None:
    cluster = ScriptedCluster(brokers=2)
    cluster.stop(1)
    cluster.stop(2)

    log = cluster.log(retry_for_ms=3_600_000, first_answer_ms_max=20)
    with pytest.raises(LogUnavailable) as never:
        await log.append(ORDERS, batch())

    assert never.value.facts == {
        "tried": "broker1:9092 (connection refused), broker2:9092 (connection refused)"
    }
    assert "correct `bootstrap`" in never.value.hint


@pytest.mark.slow
async def test_an_address_that_swallows_what_is_sent_holds_up_no_other() -> None:
    cluster = ScriptedCluster(brokers=2)
    led_by(cluster, 2)

    async def dial(host: str, port: int) -> Channel:
        return await (asyncio.Future() if host == "broker1" else cluster.dial(host, port))

    bootstrap = ["broker1:9092", "broker2:9092"]
    log = KafkaLog(KafkaSettings(bootstrap=bootstrap, connect_wait_ms_max=3_600_000), dial=dial)

    assert await log.append(ORDERS, batch()) == 7


async def test_a_cluster_that_goes_away_is_said_once_until_it_answers_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_policy, "LOGGED_AFTER_S", 0.0)
    caplog.set_level(logging.INFO)
    cluster = ScriptedCluster()
    led_by(cluster, 1)
    log = cluster.log(retry_for_ms=20)
    await log.append(ORDERS, batch())

    cluster.stop(1)
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="connection refused"):
            await log.append(ORDERS, batch())
    problem, warned = log.problem, list(caplog.messages)
    cluster.down.clear()
    await log.append(ORDERS, batch())

    assert problem == "the cluster does not answer: broker1:9092 (connection refused)"
    assert warned == [f"{problem}; retrying"]
    assert log.problem == "" and caplog.messages[1:] == ["the cluster answers again"]


async def test_an_election_is_waited_for() -> None:
    cluster = ScriptedCluster()
    led_by(cluster, -1)
    answers = iter([produced(ErrorCode.LEADER_NOT_AVAILABLE, -1), produced(offset=3)])

    def elect(node: int, request: Any) -> Any:
        return next(answers)

    cluster.on(ProduceRequest, elect)
    cluster.leaders["orders"] = 1

    assert await cluster.log().append(ORDERS, batch()) == 3


async def test_a_topic_may_appear_late_but_not_too_late() -> None:
    cluster = ScriptedCluster()
    log = cluster.log()

    with pytest.raises(LogRejected, match="does not exist"):
        await log.partition_count("orders")
    led_by(cluster, 1)

    assert await log.partition_count("orders") == 1


async def test_a_refusal_that_stays_is_not_repeated() -> None:
    cluster = ScriptedCluster()
    led_by(cluster, 1)
    cluster.on(ProduceRequest, lambda node, request: produced(ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    with pytest.raises(LogRejected, match="not allowed"):
        await cluster.log().append(ORDERS, batch())

    assert len(cluster.requests(ProduceRequest)) == 1


async def test_an_older_broker_is_asked_again_in_the_version_it_reads() -> None:
    cluster = ScriptedCluster()
    served = [ApiVersion(api_key=12, min_version=0, max_version=1)]
    asked: list[int] = []

    def refuse_first(node: int, request: ApiVersionsRequest) -> ApiVersionsResponse:
        asked.append(len(asked))
        code = ErrorCode.UNSUPPORTED_VERSION if len(asked) == 1 else ErrorCode.NONE
        return ApiVersionsResponse(error_code=code, api_keys=served)

    cluster.on(ApiVersionsRequest, refuse_first)
    link = await open_link("broker1", 9092, cluster.dial, KafkaSettings(bootstrap=["broker1:1"]))

    assert len(asked) == 2
    assert link.agreement.version_of(HeartbeatRequest(), None) == 1
    with pytest.raises(LogRejected, match="does not support"):
        link.agreement.version_of(ListOffsetsRequest(), None)


def test_a_bootstrap_without_a_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        ScriptedCluster().log(bootstrap=["localhost"])


async def test_a_connection_made_while_the_log_is_closed_is_closed_as_well() -> None:
    cluster = ScriptedCluster()
    led_by(cluster, 1)
    log = cluster.log()
    appending = asyncio.ensure_future(log.append(ORDERS, batch()))
    await asyncio.sleep(0)  # it is asking for versions now

    await log.close()

    with pytest.raises(LogUnavailable, match="closed"):
        await appending
    assert not any(channel.is_open for channel in cluster.channels)
