"""Requests that only the controller answers, passed on to it by the broker that a client asked."""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import LENGTH, read_response_header, request_frame
from headwater.core_log.protocol.message import Request, decode, response_type
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from headwater.core_log.protocol.messages.envelope import EnvelopeRequest
from headwater.core_log.replication.decisions import NewTopic
from headwater.core_log.replication.metadata import METADATA_TOPIC
from headwater.core_log.security.principal import CLUSTER, Principal, encode_principal

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

logger = logging.getLogger(__name__)
A = TypeVar("A")
PATIENCE_S = 30.0
"""How long a request is passed on while there is no controller, or its answer is lost."""
RETRY_S = 0.05
SHOWN_S_MAX = 5.0


async def forward(
    broker: "Broker", frame: bytes, *, principal: Principal, client_host: str
) -> bytes:
    """Returns the controller's answer to a client's request, a frame without its length, once this
    broker shows what was decided. Like a client it asks again when an answer is lost."""
    envelope = EnvelopeRequest(
        request_data=frame,
        request_principal=encode_principal(principal),
        client_host_address=client_host.encode(),
    )
    data = await _ask_until_answered(broker, envelope)
    with suppress(TimeoutError, ConnectionLost, HeadwaterError):
        async with asyncio.timeout(SHOWN_S_MAX):
            await catch_up(broker)
    return data


async def _ask_until_answered(broker: "Broker", envelope: EnvelopeRequest) -> bytes:
    time = asyncio.get_running_loop().time
    end_s = time() + PATIENCE_S
    while True:
        why = ""
        try:
            answer = await broker.peers.ask_controller(envelope, wait_ms=int(PATIENCE_S * 1_000))
        except (ConnectionLost, HeadwaterError) as error:
            why = str(error)
        else:
            if answer.error_code == ErrorCode.NONE:
                return answer.response_data or b""
            why = ErrorCode(answer.error_code).name
        if broker.is_stopping or time() > end_s:
            raise LogUnavailable("the controller does not answer", reason=why)
        logger.debug("the controller does not answer: %s", why)
        await asyncio.sleep(RETRY_S)


async def catch_up(broker: "Broker") -> None:
    """Returns once this broker shows all that the controller has committed by now."""
    partition = DescribeQuorumPartition(partition_index=0)
    topic = DescribeQuorumTopic(topic_name=METADATA_TOPIC, partitions=(partition,))
    said = await broker.peers.ask_controller(DescribeQuorumRequest(topics=(topic,)))
    await broker.metadata.wait_applied(said.topics[0].partitions[0].high_watermark)


async def forward_request(broker: "Broker", request: Request[A]) -> A:
    """Passes on a request of this broker's own in its newest version."""
    version = request.versions[1]
    frame = bytes(request_frame(request, version, 0, "headwater-broker"))[LENGTH.size :]
    data = memoryview(
        await forward(broker, frame, principal=CLUSTER, client_host=broker.address[0])
    )
    _, position = read_response_header(data, request.api_key, version)
    kind: Any = response_type(type(request))
    answer: A = decode(kind, data, version, position)
    return answer


async def create_elsewhere(broker: "Broker", wanted: NewTopic) -> ErrorCode:
    """Lets the controller create a topic; returns NONE once it exists here."""
    topic = CreatableTopic(
        name=wanted.name,
        num_partitions=wanted.partition_count,
        replication_factor=wanted.replication_factor,
        configs=[
            CreatableTopicConfig(name=name, value=value) for name, value in wanted.config.items()
        ],
    )
    answer = await forward_request(broker, CreateTopicsRequest(topics=(topic,)))
    code = ErrorCode(answer.topics[0].error_code)
    return ErrorCode.NONE if code is ErrorCode.TOPIC_ALREADY_EXISTS else code
