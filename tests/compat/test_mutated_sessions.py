"""What real clients say, with some of its bytes changed, harms nobody but whoever says it."""

import asyncio
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from struct import pack

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient

from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.protocol.error_codes import ErrorCode
from tests.budget import IS_LONG
from tests.builders import batch
from tests.crash.broker_process import BrokerProcess
from tests.crash.plain_client import Wire

pytestmark = pytest.mark.compat

MUTATIONS = 2000 if IS_LONG else 50
REQUEST_BYTES_MAX = BrokerSettings().request_bytes_max
ANSWER_S_MAX = 0.2
"""A request whose waiting time was changed may rightly be answered much later."""
ROOM_BYTES = 96 << 20
"""More memory than the broker has taken so far; less than one request may announce."""


class Tap:
    """Passes bytes on both ways, and keeps what clients said on each connection. Where the broker
    says its port it is made to say the tap's, so that clients stay."""

    def __init__(self, behind: tuple[str, int]) -> None:
        self._behind, self.said = behind, list[bytearray]()
        self._port_behind = pack(">i", behind[1])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_over = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._is_over.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.said.append(bytearray())
            work = (client, self.said[-1])
            threading.Thread(target=self._relay, args=work, daemon=True).start()

    def _relay(self, client: socket.socket, said: bytearray) -> None:
        try:
            behind = socket.create_connection(self._behind)
        except OSError:  # a client that was not ended asks again when the broker is gone
            client.close()
            return
        with client, behind as broker, selectors.DefaultSelector() as waiting:
            waiting.register(client, selectors.EVENT_READ, (client, broker))
            waiting.register(broker, selectors.EVENT_READ, (broker, client))
            while True:
                for key, _ in waiting.select():
                    each, other = key.data
                    try:
                        data = each.recv(1 << 16)
                        if each is broker:
                            data = data.replace(self._port_behind, pack(">i", self.port))
                        other.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    if each is client:
                        said += data


def librdkafka_session(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "recorded"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("said", b"v", b"k")
    producer.commit_transaction(60)
    producer.close()
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "recorded", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["said"])
    assert consumer.consume(1, 60)
    consumer.commit(asynchronous=False)
    consumer.close()


def kafka_python_session(address: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.describe_cluster()
    admin.list_groups()
    admin.close()
    producer = kafka.KafkaProducer(bootstrap_servers=address, compression_type="gzip")
    producer.send("said", b"v", b"k").get(60)
    producer.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("mutated")
    settings = {"internal_partitions": "1"}
    process = BrokerProcess(directory / "data", directory / "broker.log", settings)
    process.start()
    yield process
    process.kill_if_running()
    process.forget()
    process.end_children()


@pytest.fixture
def kept(broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """A bystander with a topic of its own; what is given looks whether all of it is there."""
    topic = f"kept-{request.node.name.replace('[', '-').strip(']')}"
    written = list[bytes]()

    def look() -> None:
        with Wire(broker.host_and_port) as wire:
            read = wire.fetch(topic, {0: 0}, committed=True)[0]
            assert read.error_code == ErrorCode.NONE, read
            values = [record.value for each in read.batches for record in each.records]
            assert values == written, read
            written.append(b"%d" % len(written))
            said = bytes(batch(written[-1].decode(), timestamp_ms=time.time_ns() // 1_000_000))
            assert wire.produce(topic, {0: said})[0].error_code == ErrorCode.NONE

    with Wire(broker.host_and_port) as wire:
        assert wire.create_topic(topic, 1, {}) == ErrorCode.NONE
    look()
    yield look
    look()
    assert broker.is_running
    assert "Traceback" not in broker.output.read_text()


def mutated(said: bytes, random: Random) -> bytes:
    """Some bytes changed, taken out, doubled, or turned into a length that is none."""
    data = bytearray(said)
    for _ in range(random.choice((1, 1, 2, 8))):
        place = random.randrange(len(data))
        kind = random.randrange(5)
        if kind == 0:
            data[place] = random.randrange(256)
        elif kind == 1:
            data[place] ^= 1 << random.randrange(8)
        elif kind == 2:
            data[place : place + 4] = pack(">i", random.choice((-1, 0, 1 << 30, 2**31 - 1)))
        elif kind == 3:
            del data[place : place + random.randrange(1, 9)]
        else:
            data[place:place] = data[place : place + random.randrange(1, 40)]
        data = data or bytearray(b"\0")
    return bytes(data)


def frames_of(said: bytes) -> Iterator[bytes]:
    """Requests without their length: they begin with the key of their API."""
    while said:
        end = 4 + int.from_bytes(said[:4], "big")
        yield said[4:end]
        said = said[end:]


def replay(broker: BrokerProcess, data: bytes) -> None:
    with socket.create_connection(broker.host_and_port, timeout=10) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(ANSWER_S_MAX)
            while connection.recv(1 << 16):
                pass
        except OSError:
            return


async def aiokafka_session(address: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=address) as producer:
        await producer.send_and_wait("said", b"v", b"k")
    consumer = aiokafka.AIOKafkaConsumer(
        "said", bootstrap_servers=address, group_id="aio", auto_offset_reset="earliest"
    )
    async with consumer:
        await consumer.getone()


SESSIONS: dict[str, Callable[[str], None]] = {
    "librdkafka": librdkafka_session,
    "kafka-python": kafka_python_session,
    "aiokafka": lambda address: asyncio.run(aiokafka_session(address)),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_changed_bytes_of_a_session_change_nothing_that_others_keep(
    broker: BrokerProcess, kept: Callable[[], None], name: str
) -> None:
    tap, random = Tap(broker.host_and_port), Random(name)
    SESSIONS[name](f"127.0.0.1:{tap.port}")
    tap.close()
    said = [bytes(each) for each in tap.said if each]
    assert b"\0\0" in {frame[:2] for each in said for frame in frames_of(each)}, (
        "it all passed here"
    )

    for _ in range(MUTATIONS):
        replay(broker, mutated(random.choice(said), random))

    kept()


def test_announced_bytes_take_no_memory(broker: BrokerProcess, kept: Callable[[], None]) -> None:
    """Fifty connections announce more than the process may ever take."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    taken = int(status.split("VmSize:")[1].split()[0]) << 10
    before = resource.prlimit(broker.pid, resource.RLIMIT_AS)
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (taken + ROOM_BYTES, before[1]))
    try:
        bombs = [socket.create_connection(broker.host_and_port) for _ in range(50)]
        for bomb in bombs:
            bomb.sendall(pack(">i", REQUEST_BYTES_MAX) + b"\0\3\0\4\0\0\0\7")
        for head in (pack(">hhihi", 3, 4, 1, -1, 10**9), pack(">hhih", 0, 9, 1, -1) + b"\xff" * 9):
            replay(broker, pack(">i", len(head)) + head)
        kept()
        for bomb in bombs:
            bomb.close()
        kept()
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_AS, before)
