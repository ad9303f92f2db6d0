"""Whatever comes through a socket, only its own connection suffers, and nothing stored does."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from struct import pack
from typing import TypeVar

import pytest

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.error_codes import ErrorCode as E
from headwater.core_log.protocol.frames import encode_request
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from headwater.core_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.core_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.core_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.core_log.records.batch_header import BatchHeader, seal
from headwater.core_log.records.record_codec import encode_marker
from headwater.core_log.replication.metadata import METADATA_ID
from tests.budget import PATIENCE_S
from tests.builders import Sequenced, batch
from tests.contract.records import NOW_MS
from tests.crash.plain_client import Wire

T = TypeVar("T")
REQUEST_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 10_000
LOGGER = "headwater.core_log.broker"


class Ground:
    """A broker with a topic of two partitions, a bystander's connection, and one to misuse."""

    def __init__(self, broker: RunningBroker, data: Path) -> None:
        self.broker, self.data = broker, data
        self.bystander = Wire(broker.server.address, answer_s_max=10)

    def connect(self) -> Wire:
        return Wire(self.broker.server.address, answer_s_max=10)

    def is_serving(self) -> None:
        """The bystander is served as before, and finds what was stored before."""
        assert self.values(self.bystander) == [b"kept"]
        assert self.bystander.produce("t", {1: good("more")})[1].error_code == E.NONE

    def values(self, wire: Wire) -> list[bytes | None]:
        read = wire.fetch("t", {0: 0}, committed=False)[0]
        return [record.value for each in read.batches for record in each.records]


def good(*values: str, **options: int) -> bytes:
    return bytes(batch(*values, timestamp_ms=NOW_MS, **options))  # type: ignore[arg-type]


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    settings = BrokerSettings(
        data=tmp_path / "data",
        listen="127.0.0.1:0",
        internal_partitions=1,
        request_bytes_max=REQUEST_BYTES_MAX,
    )
    running = await RunningBroker.start(settings)
    ground = Ground(running, tmp_path / "data")

    def begin() -> None:
        assert ground.bystander.create_topic(
            "t", 2, {"max.message.bytes": str(MESSAGE_BYTES_MAX)}
        ) == (E.NONE)
        assert ground.bystander.produce("t", {0: good("kept")})[0].error_code == E.NONE

    await asyncio.to_thread(begin)
    yield ground
    ground.bystander.close()
    await running.stop()


async def aside(work: Callable[[], T]) -> T:
    """A client's own thread, since the broker has this one."""
    return await asyncio.to_thread(work)


def closes(wire: Wire, data: bytes) -> bool:
    """Whether the broker answers these bytes by closing the connection."""
    wire.send(data)
    try:
        wire.receive()
    except OSError:
        wire.close()
        return True
    return False


def frame(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


METADATA = encode_request(MetadataRequest(), 9, 7, "test")

REFUSED_FRAMES = {
    "length -1": pack(">i", -1),
    "length 0": pack(">i", 0),
    "length of half a header": frame(b"\0\x12\0"),
    "length bomb": pack(">i", 2**31 - 1),
    "length above the limit": pack(">i", REQUEST_BYTES_MAX + 1),
    "noise": frame(bytes(range(200))),
    "an API that nobody knows": frame(pack(">hhih", 9999, 0, 1, -1)),
    "an API of older brokers among themselves": frame(pack(">hhih", 4, 1, 1, -1) + b"\0\1\0"),
    "a version too new": frame(pack(">hhih", 3, 999, 1, -1)),
    "a version too old": frame(pack(">hhih", 1, 0, 1, -1)),
    "a negative version": frame(pack(">hhih", 3, -1, 1, -1)),
    "a client id that is not text": frame(pack(">hhih", 3, 1, 1, 2) + b"\xff\xfe\0\0\0\0"),
    "a body that ends early": frame(METADATA[4:-3]),
    "an array of a thousand million": frame(pack(">hhihi", 3, 4, 1, -1, 10**9)),
    "a varint without an end": frame(pack(">hhih", 3, 9, 1, -1) + b"\0" + b"\xff" * 12),
}


@pytest.mark.parametrize("kind", REFUSED_FRAMES)
async def test_a_malformed_frame_closes_its_connection_with_one_line_and_disturbs_no_other(
    ground: Ground, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.INFO, LOGGER)

    assert await aside(lambda: closes(ground.connect(), REFUSED_FRAMES[kind]))

    await aside(ground.is_serving)
    assert len(caplog.records) == 1, caplog.text
    assert caplog.records[0].exc_info is None


async def test_requests_before_a_malformed_frame_are_answered(ground: Ground) -> None:
    def ask() -> None:
        with ground.connect() as wire:
            wire.send(METADATA + REFUSED_FRAMES["noise"])
            assert wire.receive()[:4] == pack(">i", 7)
            with pytest.raises(OSError):
                wire.receive()

    await aside(ask)
    await aside(ground.is_serving)


def damaged_crc() -> bytes:
    data = bytearray(good("damaged"))
    data[-1] ^= 1
    return bytes(data)


def transactional() -> bytes:
    return good("a", producer=Sequenced(7, is_transactional=True))  # type: ignore[arg-type]


def with_header(**fields: int) -> bytes:
    data = bytearray(good("a", "b"))
    data[:61] = BatchHeader.read(data)._replace(**fields).pack()
    header = BatchHeader.read(data)
    identity = (header.producer_id, header.producer_epoch, header.base_sequence)
    seal(data, producer_id=identity[0], producer_epoch=identity[1], base_sequence=identity[2])
    return bytes(data)


REFUSED_BATCHES: dict[str, tuple[Callable[[], bytes], E]] = {
    "nothing": (lambda: b"", E.CORRUPT_MESSAGE),
    "half a header": (lambda: good("a")[:30], E.CORRUPT_MESSAGE),
    "half a batch": (lambda: good("a" * 100)[:-50], E.CORRUPT_MESSAGE),
    "a wrong checksum": (damaged_crc, E.CORRUPT_MESSAGE),
    "an oversize batch": (lambda: good("a" * MESSAGE_BYTES_MAX), E.MESSAGE_TOO_LARGE),
    "two batches": (lambda: good("a") + good("b"), E.INVALID_RECORD),
    "an old format": (lambda: good("a")[:16] + b"\1" + good("a")[17:], E.INVALID_RECORD),
    "a control batch": (
        lambda: bytes(
            encode_marker(
                commit=True,
                producer_id=1,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=NOW_MS,
            )
        ),
        E.INVALID_RECORD,
    ),
    "a transaction without its name": (transactional, E.INVALID_RECORD),
    "a count that contradicts the offsets": (
        lambda: with_header(record_count=3),
        E.INVALID_RECORD,
    ),
    "offsets that go back": (
        lambda: with_header(last_offset_delta=-1, record_count=0),
        E.INVALID_RECORD,
    ),
    "a compression nobody knows": (lambda: with_header(attributes=7), E.INVALID_RECORD),
    "a producer without a sequence": (
        lambda: with_header(producer_id=5, producer_epoch=0),
        E.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("kind", REFUSED_BATCHES)
async def test_a_batch_that_breaks_a_rule_is_refused_by_kafkas_code_and_nothing_is_stored(
    ground: Ground, kind: str
) -> None:
    make, code = REFUSED_BATCHES[kind]

    def produce() -> None:
        with ground.connect() as wire:
            placed = wire.produce("t", {0: make(), 1: good("in the same request")})
            assert (placed[0].error_code, placed[1].error_code) == (code, E.NONE)

    await aside(produce)
    await aside(ground.is_serving)


@pytest.mark.parametrize("name", ["__cluster_metadata", "__consumer_offsets"])
async def test_no_client_writes_to_an_internal_topic(ground: Ground, name: str) -> None:
    def produce() -> None:
        with ground.connect() as wire:
            wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9)
            assert wire.produce(name, {0: good("a")})[0].error_code == E.INVALID_TOPIC_EXCEPTION

    await ground.broker.broker.create_unknown(name, may_create=True)
    await aside(produce)
    await aside(ground.is_serving)


async def test_no_client_writes_to_the_metadata_by_its_reserved_id(ground: Ground) -> None:
    part = PartitionProduceData(index=0, records=memoryview(good("a")))
    request = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(topic_id=METADATA_ID, partition_data=[part])]
    )

    def produce() -> int:
        with ground.connect() as wire:
            code: int = wire.ask(request, 13).responses[0].partition_responses[0].error_code
            return code

    assert await aside(produce) == E.INVALID_TOPIC_EXCEPTION
    await aside(ground.is_serving)


ILLEGAL_NAMES = [
    "../x", ".", "..", "", "a/b", "/etc/passwd", "a\0b", "x" * 250, "tæl", "a b", "a\nb", "%2e%2e",
    "\u2024\u2024", "C:\\x", "a:b", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
async def test_an_illegal_topic_name_is_refused_and_touches_no_file(
    ground: Ground, name: str
) -> None:
    await aside(ground.is_serving)  # the first batch of a partition brings a file
    before = everything_in(ground.data.parent)

    def ask() -> None:
        with ground.connect() as wire:
            assert wire.create_topic(name, 1, {}) == E.INVALID_TOPIC_EXCEPTION
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
            answer = wire.ask(request, 9)
            assert answer.topics[0].error_code == E.INVALID_TOPIC_EXCEPTION
            placed = wire.produce(name, {0: good("a")})
            assert placed[0].error_code in (
                E.UNKNOWN_TOPIC_OR_PARTITION,
                E.INVALID_TOPIC_EXCEPTION,
            )

    await aside(ask)
    await aside(ground.is_serving)
    assert everything_in(ground.data.parent) == before


def everything_in(directory: Path) -> set[str]:
    """Names without the segments' own, which come and go."""
    return {str(path) for path in directory.rglob("*") if not path.name[:20].isdigit()}


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0(ground: Ground) -> None:
    def ask() -> bytes:
        with ground.connect() as wire:
            wire.send(frame(pack(">hhih", 18, 99, 5, -1) + b"\0"))
            answer = wire.receive()
            assert (
                wire.ask(
                    ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3
                ).error_code
                == E.NONE
            )
            return answer

    answer = await aside(ask)
    assert answer[:6] == pack(">ih", 5, E.UNSUPPORTED_VERSION)
    assert answer[6:16] == pack(">ihhh", 1, 18, 0, 4)


async def test_frames_that_trickle_in_are_answered_like_any_other(ground: Ground) -> None:
    def trickle() -> None:
        with ground.connect() as wire:
            for byte in METADATA * 2:
                wire.send(bytes([byte]))
            assert wire.receive()[:4] == wire.receive()[:4] == pack(">i", 7)

    await aside(trickle)


async def test_pipelined_requests_are_answered_in_the_order_of_asking(ground: Ground) -> None:
    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1 << 20,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(fetch_offset=1)])],
    )
    frames = [
        encode_request(fetch, 12, 0, "test"),
        encode_request(MetadataRequest(), 9, 1, "test"),
        *(
            encode_request(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"),
                3,
                place,
                "test",
            )
            for place in range(2, 300)
        ),
    ]

    def ask() -> list[bytes]:
        with ground.connect() as wire:
            wire.send(b"".join(frames))
            return [wire.receive()[:4] for _ in frames]

    assert await aside(ask) == [pack(">i", place) for place in range(300)]


async def test_a_client_that_never_reads_holds_up_nobody_and_is_not_read_on_from(
    ground: Ground,
) -> None:
    def flood() -> None:
        with socket.create_connection(ground.broker.server.address, timeout=0.2) as deaf:
            with pytest.raises(TimeoutError):
                while True:
                    deaf.sendall(METADATA * 100)
            ground.is_serving()

    await aside(flood)
    await aside(ground.is_serving)


async def test_a_client_that_goes_away_in_the_middle_of_a_frame_leaves_nothing_behind(
    ground: Ground,
) -> None:
    def vanish() -> None:
        for size in (1, 4, 5, len(METADATA) - 1):
            with ground.connect() as wire:
                wire.send(METADATA[:size])

    await aside(vanish)
    await aside(ground.is_serving)
    async with asyncio.timeout(PATIENCE_S):
        while ground.broker.server.connection_count > 1:  # noqa: ASYNC110 - the kernel tells it
            await asyncio.sleep(0.01)


async def test_a_half_open_connection_gets_what_it_asked_for_before(ground: Ground) -> None:
    def ask() -> bytes:
        with socket.create_connection(ground.broker.server.address, timeout=10) as half:
            half.sendall(METADATA)
            answer = half.recv(1)
            half.shutdown(socket.SHUT_WR)
            while piece := half.recv(1 << 16):
                answer += piece
            return answer

    assert (await aside(ask))[4:8] == pack(">i", 7)
    await aside(ground.is_serving)


async def test_a_large_announcement_costs_no_memory_before_its_bytes_arrive(ground: Ground) -> None:
    def announce() -> None:
        wires = [ground.connect() for _ in range(50)]
        for wire in wires:
            wire.send(pack(">i", REQUEST_BYTES_MAX))
        ground.is_serving()
        for wire in wires:
            wire.close()

    import tracemalloc

    tracemalloc.start()
    await aside(announce)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * 64 << 10
