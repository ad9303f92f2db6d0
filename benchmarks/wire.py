"""Requests and answers as bytes, for loads that no client library can drive fast enough."""

import json
import socket
from struct import Struct
from typing import TypeVar

from headwater.core_log.protocol.frames import encode_request
from headwater.core_log.protocol.message import Request, decode, response_type
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.core_log.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import PlainRecord, encode_batch

Answer = TypeVar("Answer")

PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 8, 11, 8
LENGTH, INT64 = Struct(">i"), Struct(">q")


def json_payload(index: int, size: int) -> bytes:
    """A row as an application writes it, padded with more of the same to just this size."""
    mixed = index * 2_654_435_761 & 0xFFFFFFFF
    row = {"id": index, "user": f"u{mixed % 10_007}", "amount": mixed % 100_000 / 100, "note": ""}
    text = json.dumps(row)
    words = "".join(f"{mixed * step % 9973:x} " for step in range(1, size // 2))
    note = words[: max(0, size - len(text))]
    return (text[:-2] + note + '"}').encode()[:size].ljust(size)


def batch_of_about(size: int, value_bytes: int = 100) -> bytes:
    """One uncompressed batch, as large as whole records of this size allow."""
    count = max(1, (size - 61) // (value_bytes + 10))
    records = [
        PlainRecord(None, json_payload(index, value_bytes), timestamp_ms=1_700_000_000_000)
        for index in range(count)
    ]
    return bytes(encode_batch(records))


def record_count(batch: bytes) -> int:
    return BatchHeader.read(batch).record_count


def produce_request(topic: str, partition: int, batch: bytes, *, acks: int) -> bytes:
    data = PartitionProduceData(index=partition, records=memoryview(batch))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return encode_request(request, PRODUCE_VERSION, 1, "benchmark")


def produce_error_at(topic: str) -> int:
    """Where in an answer (without its length) the error code of the one partition stands."""
    return 4 + 4 + 2 + len(topic) + 4 + 4


class FetchFrame:
    """A fetch request of one partition whose offset is patched in place."""

    def __init__(self, topic: str, partition: int, *, bytes_max: int) -> None:
        self._frame = bytearray(self._encode(topic, partition, 0, bytes_max))
        other = self._encode(topic, partition, -1, bytes_max)
        self._at = next(
            place for place, (a, b) in enumerate(zip(self._frame, other, strict=True)) if a != b
        )

    @staticmethod
    def _encode(topic: str, partition: int, offset: int, bytes_max: int) -> bytes:
        part = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        request = FetchRequest(
            max_wait_ms=0,  # at the end an empty answer comes at once, and reading starts again
            min_bytes=1,
            max_bytes=bytes_max,
            topics=(FetchTopic(topic=topic, partitions=(part,)),),
        )
        return encode_request(request, FETCH_VERSION, 1, "benchmark")

    def at(self, offset: int) -> bytearray:
        INT64.pack_into(self._frame, self._at, offset)
        return self._frame


def fetch_records_at(topic: str) -> int:
    """Where in an answer (without its length) the length of the records stands; they follow it."""
    return 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4


def call(sock: socket.socket, request: Request[Answer], version: int) -> Answer:
    """One request and its answer, on a connection without others in flight."""
    sock.sendall(encode_request(request, version, 1, "benchmark"))
    frame = read_frame(sock)
    return decode(response_type(type(request)), memoryview(frame), version, 4)


def read_frame(sock: socket.socket) -> bytearray:
    (length,) = LENGTH.unpack(read_exactly(sock, 4))
    return read_exactly(sock, length)


def read_exactly(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        received = sock.recv_into(view)
        if not received:
            raise ConnectionError("the server closed the connection")
        view = view[received:]
    return data


def connect(address: str, *, buffer_bytes: int | None = None) -> socket.socket:
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    return sock


def first_answer(host: str, port: int, *, topic_count: int) -> bool:
    """Whether it answers, knows that many topics, and every partition of them has a leader."""
    with socket.create_connection((host, port), timeout=5) as sock:
        call(sock, ApiVersionsRequest(), 0)
        known: MetadataResponse = call(sock, MetadataRequest(topics=None), METADATA_VERSION)
        ours = [topic for topic in known.topics if not topic.is_internal]
        parts = [part for topic in ours for part in topic.partitions]
        return len(ours) >= topic_count and all(part.leader_id >= 0 for part in parts)
