"""A topic that was just made is waited for, though nodes do not know it at once."""

from typing import Any

import pytest

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from tests.core_log.client.scripted_cluster import ScriptedCluster

ORDERS = TopicSettings(name="orders", partitions=1)


def slow_to_tell(*, known_after: int, code: ErrorCode) -> ScriptedCluster:
    """`orders` is made, or was, as the code says, and known from so many questions on."""
    cluster = ScriptedCluster()
    tell = cluster._metadata

    def create(node: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        made = CreatableTopicResult(name="orders", error_code=code)
        return CreateTopicsResponse(topics=[made])

    def metadata(node: int, request: MetadataRequest) -> Any:
        asked = [each for _, each in cluster.requests(MetadataRequest) if each.topics]
        if len(asked) > known_after:
            cluster.leaders["orders"] = 1
        return tell(node, request)

    cluster.on(CreateTopicsRequest, create)
    cluster.on(MetadataRequest, metadata)
    return cluster


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS])
async def test_a_new_topic_is_there_however_long_nodes_take_to_learn_of_it(code: ErrorCode) -> None:
    log = slow_to_tell(known_after=5, code=code).log(unknown_topic_for_ms=0, retry_for_ms=60_000)

    await log.ensure_topic(ORDERS)

    assert await log.partition_count("orders") == 1
    await log.close()


async def test_several_are_asked_for_at_once_and_again_only_where_that_failed() -> None:
    cluster, names = ScriptedCluster(), ("made", "there", "late")
    cluster.leaders |= dict.fromkeys(names, 1)
    asked = list[list[str]]()

    def create(node: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        asked.append([each.name for each in request.topics])
        codes = {"there": ErrorCode.TOPIC_ALREADY_EXISTS}
        if len(asked) == 1:
            codes["late"] = ErrorCode.REQUEST_TIMED_OUT
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=name, error_code=codes.get(name, ErrorCode.NONE))
                for name in asked[-1]
            ]
        )

    cluster.on(CreateTopicsRequest, create)
    log = cluster.log()

    await log.ensure_topic(*(TopicSettings(name=name, partitions=1) for name in names))

    assert asked == [["made", "there", "late"], ["late"]]
    await log.close()


async def test_one_that_nobody_ever_learns_of_is_given_up() -> None:
    cluster = slow_to_tell(known_after=1 << 30, code=ErrorCode.NONE)
    log = cluster.log(unknown_topic_for_ms=0, retry_for_ms=20)

    with pytest.raises(LogUnavailable, match="not known everywhere yet"):
        await log.ensure_topic(ORDERS)

    await log.close()
