"""What every program here needs: the broker's address, a topic of its own, a promise checked."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

BROKER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
PATIENCE_S = 30

Setting = str | int | bool


class Record(NamedTuple):
    """A record as these programs look at it: its place, and its key and value as text."""

    partition: int
    offset: int
    key: str
    value: str
    is_tombstone: bool


def new_topic(subject: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    """A fresh topic, left in place so that you can look at it afterwards."""
    topic = unique(subject)
    admin = AdminClient({"bootstrap.servers": BROKER, "log_level": 4})
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config or {})
    admin.create_topics([wanted])[topic].result()

    def has_leaders() -> bool:
        found = admin.list_topics(topic).topics[topic].partitions.values()
        return len(found) == partitions and all(each.leader >= 0 for each in found)

    wait_until(has_leaders, "every partition has a leader")  # Kafka elects them a moment later
    return topic


def unique(subject: str) -> str:
    return f"basics-{subject}-{os.urandom(3).hex()}"


def producer(**settings: Setting) -> Producer:
    """`producer(linger_ms=5)` is a producer with Kafka's setting `linger.ms` at 5."""
    return Producer({"bootstrap.servers": BROKER} | _dotted(settings))


def consumer(group: str, **settings: Setting) -> Consumer:
    """Reads from the start where its group has no position yet, and commits when told to."""
    defaults = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    return Consumer({"bootstrap.servers": BROKER, "group.id": group} | defaults | _dotted(settings))


def _dotted(settings: dict[str, Setting]) -> dict[str, Setting]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def write(topic: str, values: Iterable[str], *, key: str | None = None) -> list[Record]:
    """Writes values one after another and returns them as the broker acknowledged them."""
    acknowledged: list[Message] = []
    writer = producer()
    for value in values:
        writer.produce(topic, value, key, on_delivery=lambda _, sent: acknowledged.append(sent))
    writer.flush()
    return [record_of(message) for message in acknowledged]


def read_all(topic: str, **settings: Setting) -> list[Record]:
    """Every record from the start of each partition to the end that stands now."""
    settings |= {"enable_partition_eof": True, "fetch_wait_max_ms": 20}
    reader = consumer(unique("reader"), **settings)
    partitions = reader.list_topics(topic).topics[topic].partitions
    reader.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    records: list[Record] = []
    ended = 0
    while ended < len(partitions):
        message = reader.poll(PATIENCE_S)
        assert message is not None, "every partition comes to its end"
        error = message.error()
        if error is None:
            records.append(record_of(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended += 1
        else:
            raise KafkaException(error)
    reader.close()
    return records


def read(reader: Consumer, count: int) -> list[Record]:
    """The next `count` records of a subscribed consumer."""
    records: list[Record] = []
    while len(records) < count:
        message = reader.poll(PATIENCE_S)
        assert message is not None, f"{count} records arrive, not only {len(records)}"
        records.append(record_of(message))
    return records


def record_of(message: Message) -> Record:
    if message.error():
        raise KafkaException(message.error())
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None, "what was read or acknowledged has a place"
    key, value = message.key() or b"", message.value()
    return Record(partition, offset, key.decode(), (value or b"").decode(), value is None)


def texts(records: Iterable[Record]) -> list[str]:
    return [record.value for record in records]


def wait_until(is_so: Callable[[], bool], sentence: str) -> None:
    """For what a broker does in its own time: retention, compaction, a rebalance."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"NOT SO within {PATIENCE_S} s: {sentence}")
        time.sleep(0.05)


def check(is_so: bool, sentence: str) -> None:
    """A promise of the log: said when it holds, and the end of the program when it does not."""
    if not is_so:
        raise SystemExit(f"NOT SO: {sentence}")
    print(f"  so it is: {sentence}")
