"""A fetch asks every leader it needs, and whoever has something first answers for all."""

import asyncio

import pytest

from headwater.core_log.foundation.errors import CorruptLog, LogUnavailable, UnreadableBatch
from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headwater.core_log.records.record_codec import PlainRecord, encode_batch
from tests.core_log.client.scripted_cluster import NEVER, ScriptedCluster

LEFT, RIGHT = TopicPartition("left", 0), TopicPartition("right", 0)
WAITING, AT_ONCE = FetchLimit(wait_ms_max=5_000), FetchLimit(wait_ms_max=0)
BATCH = memoryview(bytes(encode_batch([PlainRecord(b"k", b"v", timestamp_ms=1)])))


def fetched(topic: str, records: memoryview | None = None, code: int = 0) -> FetchResponse:
    part = PartitionData(partition_index=0, error_code=code, records=records)
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[part])])


class Script:
    """Two brokers that each lead a topic; what they hold may change."""

    def __init__(self) -> None:
        self.cluster = ScriptedCluster(brokers=2)
        self.cluster.leaders |= {"left": 1, "right": 2}
        self.cluster.versions[FetchRequest.api_key] = (4, 12)  # in which topics have names
        self.held: dict[str, memoryview] = {}
        self.cluster.on(FetchRequest, self._fetch)

    def _fetch(self, node: int, request: FetchRequest) -> FetchResponse | object:
        topic = "left" if node == 1 else "right"
        if topic not in self.held and request.max_wait_ms:
            return NEVER
        return fetched(topic, self.held.get(topic))


async def test_every_leader_is_asked_for_its_share() -> None:
    script = Script()
    script.held = {"left": BATCH, "right": BATCH}

    found = await script.cluster.log().fetch(
        {LEFT: 0, RIGHT: 0}, limit=WAITING, isolation=Isolation.COMMITTED
    )

    assert sorted(part.partition for part in found) == [LEFT, RIGHT]
    shares = {
        (node, topic.topic)
        for node, request in script.cluster.requests(FetchRequest)
        for topic in request.topics
    }
    assert shares == {(1, "left"), (2, "right")}


async def test_a_leader_without_news_does_not_hold_up_the_others() -> None:
    script = Script()
    log = script.cluster.log()
    waiting = asyncio.ensure_future(
        log.fetch({LEFT: 0, RIGHT: 0}, limit=AT_ONCE, isolation=Isolation.COMMITTED)
    )
    assert list(await waiting) == []
    script.held = {"right": BATCH}

    found = await log.fetch({LEFT: 0, RIGHT: 0}, limit=WAITING, isolation=Isolation.COMMITTED)

    assert [part.partition for part in found] == [RIGHT]


async def test_the_bytes_wanted_are_shared_among_leaders() -> None:
    script = Script()
    limit = FetchLimit(bytes_max=1000, wait_ms_max=0)

    await script.cluster.log().fetch(
        {LEFT: 0, RIGHT: 0}, limit=limit, isolation=Isolation.COMMITTED
    )

    asked = [request.max_bytes for _, request in script.cluster.requests(FetchRequest)]
    assert asked == [500, 500]


async def test_a_log_that_finds_its_own_batch_damaged_is_corrupt() -> None:
    script = Script()
    script.cluster.on(
        FetchRequest, lambda node, request: fetched("left", code=ErrorCode.CORRUPT_MESSAGE)
    )

    with pytest.raises(CorruptLog):
        await script.cluster.log().fetch({LEFT: 0}, limit=AT_ONCE, isolation=Isolation.COMMITTED)


async def test_fetching_nothing_asks_nobody() -> None:
    script = Script()

    found = await script.cluster.log().fetch({}, limit=WAITING, isolation=Isolation.COMMITTED)

    assert (list(found), script.cluster.asked) == ([], [])


async def test_a_fetch_under_way_ends_when_the_log_is_closed() -> None:
    script = Script()
    log = script.cluster.log(retry_for_ms=60_000)
    waiting = asyncio.ensure_future(
        log.fetch({LEFT: 0}, limit=WAITING, isolation=Isolation.COMMITTED)
    )
    for _ in range(20):
        await asyncio.sleep(0)

    await log.close()

    with pytest.raises(LogUnavailable, match="closed"):
        await waiting


@pytest.mark.parametrize("size", [30, len(BATCH)])
async def test_bytes_that_are_no_batch_are_an_error_and_no_end_of_the_log(size: int) -> None:
    script, of_format_1 = Script(), bytearray(BATCH)
    of_format_1[16] = 1
    script.held = {"left": memoryview(bytes(of_format_1[:size]))}

    with pytest.raises(UnreadableBatch, match="another format than 2") as raised:
        await script.cluster.log().fetch({LEFT: 7}, limit=AT_ONCE, isolation=Isolation.COMMITTED)

    assert raised.value.facts == {"topic": "left", "partition": 0, "offset": 7}
