"""A full disk refuses in so many words, tears nothing, and serves again once there is room."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.core_log.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.builders import Sequenced, batch
from tests.crash.broker_faults import why_no_mounts
from tests.crash.broker_process import BrokerProcess
from tests.crash.log_contents import faults_of, read_partition
from tests.crash.plain_client import Wire

DISK_BYTES, BALLAST_BYTES, BATCH_BYTES_MAX = 8 << 20, 4 << 20, 60_000
PARTITIONS = 3
REFUSALS = 40
WHY_NOT = why_no_mounts()

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "disk"
    point.mkdir()
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


class Retrying:
    """An idempotent producer that sends each batch again until it is taken."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.taken: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        self.refused_count = 0
        self._producer_id = -1
        self._pending: dict[int, bytes] = {}

    def introduce(self, wire: Wire) -> None:
        self._producer_id = wire.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id
        assert self._producer_id >= 0

    def send(self, wire: Wire) -> set[int]:
        """One request with a batch for every partition; the codes of what was answered."""
        for index in range(PARTITIONS):
            if index not in self._pending:
                size = self.random.randrange(100, BATCH_BYTES_MAX)
                self._pending[index] = b"%d " % len(self.taken[index]) + b"." * size
        batches = {
            index: bytes(
                batch(value, producer=Sequenced(self._producer_id, 0, len(self.taken[index])))
            )
            for index, value in self._pending.items()
        }
        answers = wire.produce("t", batches)
        for index, answer in answers.items():
            if answer.error_code == ErrorCode.NONE:
                assert answer.base_offset == len(self.taken[index])
                self.taken[index].append(self._pending.pop(index))
            else:
                self.refused_count += 1
        return {answer.error_code for answer in answers.values()}

    def check(self, wire: Wire) -> None:
        """Everything that was taken is there once, in order; beyond it at most what is retried."""
        for index, taken in self.taken.items():
            partition = TopicPartition("t", index)
            view = read_partition(wire, partition)
            assert not faults_of(partition, view, is_dense=True)
            found = [record.value for record in view.records]
            assert found[: len(taken)] == taken
            assert found[len(taken) :] in ([], [self._pending.get(index)])


@pytest.fixture
def broker(disk: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(disk / "data", tmp_path / "broker.log", {"internal_partitions": "1"})
    try:
        yield broker
    finally:
        broker.kill_if_running()
        broker.forget()
        broker.end_children()


def test_a_broker_starts_on_a_full_disk_so_that_topics_can_be_deleted_there(
    broker: BrokerProcess, disk: Path
) -> None:
    producer, ballast = Retrying(Random(8)), disk / "ballast"
    broker.start()
    with Wire(broker.host_and_port) as wire:
        assert wire.create_topic("t", PARTITIONS, {}) == ErrorCode.NONE
        producer.introduce(wire)
        producer.send(wire)
    broker.kill()
    broker.forget()
    with pytest.raises(OSError, match="No space left"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))

    broker.start()

    with Wire(broker.host_and_port) as wire:
        producer.check(wire)
        while ErrorCode.KAFKA_STORAGE_ERROR not in producer.send(wire):
            pass
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
        assert wire.ask(request, 6).responses[0].error_code == ErrorCode.NONE
        while wire.create_topic("u", 1, {}) != ErrorCode.NONE:
            pass  # its files are removed beside
        assert wire.produce("u", {0: bytes(batch("anew"))})[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("restart", ["none", "killed", "killed while full"])
def test_a_full_disk_refuses_and_heals_without_help(
    broker: BrokerProcess, disk: Path, restart: str
) -> None:
    producer, ballast = Retrying(Random(7)), disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker.start()
    with Wire(broker.host_and_port) as wire:
        assert wire.create_topic("t", PARTITIONS, {"segment.bytes": "200000"}) == ErrorCode.NONE
        producer.introduce(wire)

        codes = set[int]()
        while producer.refused_count < REFUSALS:
            codes |= producer.send(wire)
        assert codes == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
        producer.check(wire)

        if restart == "killed while full":
            broker.kill()
            broker.forget()
        ballast.unlink()
    if restart == "killed while full":
        broker.start()
    with Wire(broker.host_and_port) as wire:
        refused = producer.refused_count
        for _ in range(5):
            assert producer.send(wire) == {ErrorCode.NONE}
        assert producer.refused_count == refused
        producer.check(wire)
    if restart == "killed":
        broker.kill()
        broker.forget()
        broker.start()
        with Wire(broker.host_and_port) as wire:
            producer.check(wire)
            assert producer.send(wire) == {ErrorCode.NONE}
            producer.check(wire)
