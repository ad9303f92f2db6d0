"""A client that takes every answer at face value, one request at a time over a plain socket."""

import socket
import time
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from headwater.core_log.protocol import message
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.frames import encode_request, read_response_header
from headwater.core_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headwater.core_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.core_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.core_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.batch_header import check_batch
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    decode_marker,
    iterate_batches,
)

LENGTH = Struct(">i")
ANSWER_S_MAX = 120
PRODUCE_VERSION, FETCH_VERSION, LIST_VERSION, OFFSETS_VERSION, CREATE_VERSION = 9, 12, 7, 7, 5
EARLIEST, LATEST = -2, -1
FETCH_BYTES_MAX = 4 << 20
SETTLE_S_MAX = 120
COORDINATOR_COMING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Stored:
    """One batch as a reader got it."""

    __slots__ = ("base_offset", "data", "is_control", "is_transactional", "next_offset", "producer")

    def __init__(self, batch: memoryview) -> None:
        header = check_batch(batch)
        self.data = bytes(batch)
        self.base_offset, self.next_offset = header.base_offset, header.next_offset
        self.producer = header.producer_id
        self.is_transactional, self.is_control = header.is_transactional, header.is_control

    @property
    def records(self) -> list[PlainRecord]:
        return decode_batch(self.data)[1]

    @property
    def commits(self) -> bool:
        """What a control batch says."""
        marker = decode_marker(self.records[0])
        assert marker is not None, "we write no other control records than markers"
        return marker.commit


class Placed(NamedTuple):
    """One partition's part of a Produce answer."""

    error_code: int
    base_offset: int


class Read(NamedTuple):
    """One partition's part of a Fetch answer."""

    error_code: int
    high_watermark: int
    stable_offset: int
    start_offset: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction."""
    batches: list[Stored]


class Wire:
    """Raises OSError when the broker goes away, as it is expected to."""

    def __init__(self, address: tuple[str, int], *, answer_s_max: float = ANSWER_S_MAX) -> None:
        self._socket = socket.create_connection(address, timeout=answer_s_max)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next frame, its length taken off."""
        (size,) = LENGTH.unpack(self._receive_exactly(LENGTH.size))
        return self._receive_exactly(size)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the broker closed the connection")
            data += piece
        return bytes(data)

    def ask(self, request: Any, version: int) -> Any:
        self._correlation += 1
        self.send(encode_request(request, version, self._correlation, "witness"))
        frame = memoryview(self.receive())
        correlation, position = read_response_header(frame, request.api_key, version)
        assert correlation == self._correlation, "answers come in the order of asking"
        return message.decode(message.response_type(type(request)), frame, version, position)

    def fetch(
        self, topic: str, offsets: dict[int, int], *, committed: bool, wait_ms: int = 0
    ) -> dict[int, Read]:
        """What follows each offset; with `committed` as far as it is decided."""
        partitions = [
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
            )
            for index, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=partitions)],
        )
        answer = self.ask(request, FETCH_VERSION)
        assert answer.error_code == 0, f"fetch answers {answer.error_code}"
        return {
            part.partition_index: _read_part(part)
            for each in answer.responses
            for part in each.partitions
        }

    def produce(
        self, topic: str, batches: dict[int, bytes], *, acks: int = -1
    ) -> dict[int, Placed]:
        """One batch per partition; what became of each."""
        data = [
            PartitionProduceData(index=index, records=memoryview(batch))
            for index, batch in batches.items()
        ]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.ask(request, PRODUCE_VERSION)
        return {
            part.index: Placed(part.error_code, part.base_offset)
            for each in answer.responses
            for part in each.partition_responses
        }

    def create_topic(self, name: str, partitions: int, config: dict[str, str]) -> int:
        """The error code."""
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), CREATE_VERSION)
        code: int = answer.topics[0].error_code
        return code

    def offset(self, topic: str, index: int, timestamp: int, *, committed: bool = False) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
                )
            ],
        )
        found = self.ask(request, LIST_VERSION).topics[0].partitions[0]
        assert found.error_code == 0, f"list offsets answers {found.error_code}"
        offset: int = found.offset
        return offset

    def committed_offset(self, group: str, topic: str, index: int) -> tuple[int, int]:
        """The error code, and the group's offset once it is stable; -1 where there is none. Asks
        again, as clients do, while the coordinator is about to be there."""
        deadline = time.monotonic() + SETTLE_S_MAX
        while True:
            found = self._committed_offset_now(group, topic, index)
            if found[0] not in COORDINATOR_COMING or time.monotonic() > deadline:
                return found
            time.sleep(0.05)

    def _committed_offset_now(self, group: str, topic: str, index: int) -> tuple[int, int]:
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[index])],
            require_stable=True,
        )
        answer = self.ask(request, OFFSETS_VERSION)
        if answer.error_code:
            return answer.error_code, -1
        found = answer.topics[0].partitions[0]
        return found.error_code, found.committed_offset


def _read_part(part: Any) -> Read:
    batches = [Stored(batch) for batch in iterate_batches(part.records or b"")]
    aborted = [(each.producer_id, each.first_offset) for each in part.aborted_transactions or ()]
    return Read(
        part.error_code,
        part.high_watermark,
        part.last_stable_offset,
        part.log_start_offset,
        aborted,
        batches,
    )
