"""Who has said everything and still listens is answered, as by Kafka."""

import asyncio
import socket

from headwater.core_log.protocol.frames import encode_request
from headwater.core_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from tests.contract.foreign_topics import Cluster
from tests.crash.plain_client import LENGTH

METADATA_VERSION, FETCH_VERSION = 9, 11


def last_words(cluster: Cluster, *requests: bytes) -> list[int]:
    """The correlation ids of the answers that come after the end of what is sent."""
    host, port = cluster.endpoint.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(b"".join(requests))
        client.shutdown(socket.SHUT_WR)
        heard = b""
        while piece := client.recv(1 << 16):
            heard += piece
    found, position = [], 0
    while position < len(heard):
        size, correlation = LENGTH.unpack_from(heard, position)[0], position + LENGTH.size
        found.append(LENGTH.unpack_from(heard, correlation)[0])
        position += LENGTH.size + size
    return found


def metadata(correlation: int) -> bytes:
    return encode_request(MetadataRequest(topics=()), METADATA_VERSION, correlation, "test")


def waiting_fetch(correlation: int, topic: str) -> bytes:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    return encode_request(request, FETCH_VERSION, correlation, "test")


async def test_a_request_followed_by_the_end_is_answered(cluster: Cluster) -> None:
    answered = await asyncio.to_thread(last_words, cluster, metadata(1))

    assert answered == [1]


async def test_requests_behind_one_that_waits_are_answered_too(cluster: Cluster) -> None:
    topic = await cluster.topic("empty")
    many = [metadata(number) for number in range(2, 300)]

    answered = await asyncio.to_thread(
        last_words, cluster, metadata(0), waiting_fetch(1, topic), *many
    )

    assert answered == list(range(300))


async def test_half_a_request_followed_by_the_end_closes_the_connection(cluster: Cluster) -> None:
    answered = await asyncio.to_thread(last_words, cluster, metadata(1), metadata(2)[:-1])

    assert answered == [1]
