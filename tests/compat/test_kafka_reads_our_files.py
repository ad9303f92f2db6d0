"""Apache Kafka's tools read what our broker wrote and work on it; we read what Kafka wrote."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.java_programs import kafka_jars, run_java
from tests.contract.apache_kafka import run_apache_kafka
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.kafka]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 2000
COMPACTED_S_MAX = 60
QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
SETTINGS = {"internal_partitions": "1", "housekeeping_interval_ms": "200"}
SMALL_SEGMENTS = {"segment.bytes": str(1 << 20), "index.interval.bytes": "512"}
TROUBLE = ("Found timestamp mismatch", "Mismatches in", "Index position", "Non-consecutive")


def write(address: str) -> None:
    """A topic per codec, a compacted one, transactions of both ends, and a group's offsets."""
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(codec, 1, 1, config=SMALL_SEGMENTS) for codec in CODECS]
    policy = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topics += [NewTopic("compacted", 1, 1, config=SMALL_SEGMENTS | policy)]
    topics += [NewTopic("transactions", 1, 1)]
    for created in admin.create_topics(topics).values():
        created.result(30)
    for topic in (*CODECS, "compacted"):
        codec = topic if topic in CODECS else "none"
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "linger.ms": 2}
            | {"enable.idempotence": True, "batch.num.messages": 100}
        )
        for number in range(COUNT):
            noise = "".join(str(hash((number, each)) % 10**9) for each in range(60))
            producer.produce(topic, noise, f"k{number % 50}", headers={"n": str(number)})
        assert producer.flush(60) == 0
    transact(address)
    reader = Consumer({"bootstrap.servers": address, "group.id": "readers"})
    reader.commit(offsets=[TopicPartition("none", 0, 42)], asynchronous=False)
    reader.close()


def transact(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "transactional.id": "writer"})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce("transactions", f"value {number}")
        producer.flush(30)
        (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a stopped broker of ours left behind."""
    kafka_jars()
    directory = tmp_path_factory.mktemp("our-files")
    broker = BrokerProcess(directory / "data", directory / "broker.log", SETTINGS)
    broker.start()
    write(broker.address)
    wait_for_compaction(broker.output)
    broker.stop()
    return broker.data


def wait_for_compaction(output: Path) -> None:
    deadline = time.monotonic() + COMPACTED_S_MAX
    while "compacted compacted-0" not in output.read_text():
        assert time.monotonic() < deadline, "the broker did not compact what is due"
        time.sleep(0.1)


def dump(files: list[Path], *options: str) -> str:
    names = ",".join(map(str, files))
    main = "org.apache.kafka.tools.DumpLogSegments"
    return run_java(f"{kafka_jars()}/*", main, "--files", names, *options, options=QUIET)


def of(data: Path, topic: str, *suffixes: str) -> list[Path]:
    directory = data / "log" / f"{topic}-0"
    return [path for suffix in suffixes for path in sorted(directory.glob(f"*{suffix}"))]


def verify(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater.pipelines.cli", "log", "verify", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_record_of_every_codec_is_dumped(data: Path) -> None:
    files = [path for codec in CODECS for path in of(data, codec, ".log")]

    said = dump(files, "--deep-iteration", "--print-data-log")

    assert len(files) > len(CODECS), "there are several segments"
    assert said.count("| offset: ") == COUNT * len(CODECS)
    assert said.count("isvalid: false") == 0
    for codec in CODECS:
        assert f"compresscodec: {codec}" in said.lower()


def test_indexes_agree_with_their_segments(data: Path) -> None:
    files = [path for codec in CODECS for path in of(data, codec, ".index", ".timeindex")]

    said = dump(files) + dump(files, "--index-sanity-check")

    assert said.count("passed sanity check") >= len(of(data, "none", ".index"))
    assert not [word for word in TROUBLE if word in said], said[-3000:]


def test_transactions_and_producers_are_dumped(data: Path) -> None:
    said = dump(of(data, "transactions", ".log", ".txnindex", ".snapshot"), "--deep-iteration")

    assert said.count("endTxnMarker: COMMIT") == said.count("endTxnMarker: ABORT") == 3
    assert said.count("version: 0 producerId:") == 3, "the index of aborted transactions"
    assert "lastTimestamp: " in said, "the producers' snapshot"


def test_the_beginning_of_a_quorums_epoch_is_dumped(data: Path) -> None:
    said = dump(of(data, "__cluster_metadata", ".log")[:1], "--print-data-log")

    assert 'LeaderChange: {"version":0,"leaderId":1,' in said


def test_compacted_segments_are_dumped(data: Path) -> None:
    said = dump(of(data, "compacted", ".log"), "--deep-iteration", "--print-data-log")

    assert said.count("isvalid: false") == 0
    assert 50 <= said.count("| offset: ") < COUNT


def test_internal_topics_are_decoded(data: Path) -> None:
    offsets = dump(of(data, "__consumer_offsets", ".log"), "--offsets-decoder")
    states = dump(of(data, "__transaction_state", ".log"), "--transaction-log-decoder")

    assert '"group":"readers"' in offsets
    assert '"offset":42' in offsets
    assert '"transactionalId":"writer"' in states


def test_our_tools_agree_about_our_files(data: Path) -> None:
    assert verify(data).returncode == 0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", SETTINGS)
    process.start()
    yield process
    process.stop()


def test_kafkas_own_tools_work_on_our_broker(broker: BrokerProcess) -> None:
    kafka = f"{kafka_jars()}/*"
    tools = "org.apache.kafka.tools."
    server = ("--bootstrap-server", broker.address)
    create = ("--create", "--topic", "perf", "--partitions", "2")
    run_java(kafka, f"{tools}TopicCommand", *server, *create, options=QUIET)
    load = ["--topic", "perf", "--num-records", "20000", "--record-size", "100"]
    load += ["--throughput", "-1", "--bootstrap-server", broker.address]
    produced = run_java(kafka, f"{tools}ProducerPerformance", *load, options=QUIET)
    read = ("--topic", "perf", "--num-records", "20000", "--group", "perf")
    consumed = run_java(kafka, f"{tools}ConsumerPerformance", *server, *read, options=QUIET)
    described = run_java(
        kafka, f"{tools}TopicCommand", *server, "--describe", "--topic", "perf", options=QUIET
    )
    group = run_java(
        kafka,
        f"{tools}consumer.group.ConsumerGroupCommand",
        *server,
        *("--describe", "--group", "perf"),
        options=QUIET,
    )

    quorum = run_java(
        kafka, f"{tools}MetadataQuorumCommand", *server, "describe", "--status", options=QUIET
    )

    assert "20000 records sent" in produced
    assert "20000" in consumed
    assert "PartitionCount: 2" in described
    assert "perf" in group
    assert f'endpoints": ["PLAINTEXT://{broker.address}"]' in quorum


def test_we_read_what_apache_kafka_wrote(broker: BrokerProcess, tmp_path: Path) -> None:
    topics = (*CODECS, "transactions")
    kafka = tmp_path / "kafka"
    kafka.mkdir()
    with run_apache_kafka(kafka) as address:
        write(address)
    admin = AdminClient({"bootstrap.servers": broker.address})
    for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        created.result(30)
    broker.kill()
    broker.forget()
    for topic in topics:
        for path in (kafka / "data" / f"{topic}-0").glob("0*.*"):
            (broker.data / "log" / f"{topic}-0" / path.name).write_bytes(path.read_bytes())

    broker.start()
    found = {topic: len(read(broker.address, topic)) for topic in CODECS}
    committed = read(broker.address, "transactions")

    assert found == dict.fromkeys(CODECS, COUNT)
    assert committed == [b"value 0", b"value 2", b"value 4"]
    assert verify(broker.data).returncode == 0


def read(address: str, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "all", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    values: list[bytes | None] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "records or the end of the partition"
            if message.error():
                return values
            values.append(message.value())
    finally:
        consumer.close()
