"""Apache Kafka's own tool reads our files, and we read the files that Apache Kafka wrote."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.core_log.storage.files import OsFiles
from headwater.core_log.storage.index import AbortedTransaction
from headwater.core_log.storage.log_config import LogConfig
from headwater.core_log.storage.partition_log import PartitionLog
from tests.builders import START_MS, Sequenced, append, open_log, open_store, sync, values_of
from tests.contract.apache_kafka import run_apache_kafka

pytestmark = pytest.mark.kafka
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=300)
DUMPED = (".index", ".log", ".snapshot", ".timeindex", ".txnindex")


@dataclass
class Dump:
    """What DumpLogSegments says of a partition's files."""

    text: str

    def column(self, name: str) -> list[int]:
        return [int(found) for found in re.findall(rf"\b{name}: (-?\d+)", self.text)]


def dump(directory: Path, *options: str) -> Dump:
    jars = os.environ.get("HEADWATER_KAFKA_JARS")
    if not jars:
        pytest.skip("the tools are not here: HEADWATER_KAFKA_JARS=$(scripts/fetch_kafka.sh)")
    names = sorted(str(path) for path in directory.iterdir() if path.suffix in DUMPED)
    tool = ["java", "-cp", f"{jars}/*", "org.apache.kafka.tools.DumpLogSegments"]
    answer = subprocess.run(
        [*tool, *options, "--files", ",".join(names)], capture_output=True, text=True, check=True
    )
    return Dump(answer.stdout)


def write_everything(log: PartitionLog) -> None:
    """Batches of two producers, transactions of both ends, epochs, several segments."""
    for number in range(60):
        epoch, time = number // 20, START_MS + number
        stamp = Sequenced(7, 0, 2 * number)
        values = f"value {number}", "x" * (number % 30)
        append(log, *values, producer=stamp, timestamp_ms=time, leader_epoch=epoch)
        if number % 10 == 3:
            stamp = Sequenced(9, number // 10, 0, is_transactional=True)
            append(log, "in a transaction", producer=stamp, leader_epoch=epoch)
        if number % 10 == 6:
            log.append_marker(
                9,
                number // 10,
                commit=number % 20 == 6,
                coordinator_epoch=1,
                leader_epoch=epoch,
                now_ms=time,
            )


def test_kafka_reads_our_files(tmp_path: Path) -> None:
    store, log = open_log(OsFiles(), config=CONFIG, data=tmp_path)
    write_everything(log)
    sync(log, store)
    aborted = log.find_aborted(0, log.end_offset)
    store.close()

    found = dump(log.directory, "--deep-iteration")

    assert "isvalid: false" not in found.text
    assert found.text.count("isvalid: true") == 60 + 6 + 6
    assert found.column("baseOffset") == [head.base_offset for head in log.heads(0)]
    assert found.column("lastStableOffset") == [each.last_stable_offset for each in aborted]
    assert "currentTxnFirstOffset" in found.text
    assert log.end_offset - 1 in found.column("lastOffset")
    checked = dump(log.directory, "--index-sanity-check", "--verify-index-only").text
    assert checked.count("passed sanity check") == 2 * len(log.segments)


def test_we_read_kafkas_files(tmp_path: Path) -> None:
    with run_apache_kafka(tmp_path) as address:
        if os.environ.get("HEADWATER_KAFKA"):
            pytest.skip("the files of a running node are elsewhere")
        admin = AdminClient({"bootstrap.servers": address})
        topic = NewTopic("orders", 1, 1, config={"segment.bytes": str(1 << 20)})
        admin.create_topics([topic])["orders"].result(30)
        written = produce(address)
        read_committed(address, 40)  # now the last marker is there as well
    ours = tmp_path / "ours"
    open_store(OsFiles(), data=ours).close(clean=False)
    shutil.copytree(tmp_path / "data" / "orders-0", ours / "log" / "orders-0")
    (ours / "log" / "orders-0" / "partition.metadata").unlink()

    _, log = open_log(OsFiles(), config=LogConfig(segment_bytes=1 << 20), data=ours)

    found = [value for _, value in values_of(log)]
    assert found == written
    assert len(log.segments) > 1
    assert log.epochs.latest == 0
    (aborted,) = log.find_aborted(0, log.end_offset)
    assert isinstance(aborted, AbortedTransaction)
    assert log.producers.first_unstable_offset() is None
    assert append(log, "goes on", leader_epoch=1) == log.end_offset - 1


def produce(address: str) -> list[bytes]:
    """A committed transaction, an aborted one, and enough for a second segment."""
    settings = {"bootstrap.servers": address, "transactional.id": "t", "linger.ms": 0}
    producer = Producer(settings)
    producer.init_transactions(30)
    written: list[bytes] = []
    for commit, count in ((True, 20), (False, 20), (True, 20)):
        producer.begin_transaction()
        for number in range(count):
            value = b"%d " % number + b"v" * 60_000
            producer.produce("orders", value)
            written.append(value)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return written


def read_committed(address: str, count: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    seen = 0
    while seen < count:
        message = consumer.poll(30)
        assert message is not None, "committed records become readable"
        assert message.error() is None
        seen += 1
    consumer.close()
