"""Loads by an ordinary client (librdkafka), each a process of its own: prints what it measured."""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, NewTopic

from benchmarks.wire import json_payload

CHUNK = 10_000
QUEUED_MAX = 500_000
SPIN_S = 0.000_15
"""Sleeps end up to this early, because the scheduler wakes us late."""


def create_topics(
    address: str,
    names: list[str],
    partitions: int,
    config: dict[str, str],
    *,
    replicas: int = 1,
) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 4})
    wanted = [NewTopic(name, partitions, replicas, config=config) for name in names]
    for future in admin.create_topics(wanted, operation_timeout=60).values():
        future.result(60)
    for name in names:
        wait_for_leaders(address, name)


def wait_for_leaders(address: str, topic: str) -> None:
    """Kafka answers that a topic is made before its partitions can be written to."""
    deadline = time.monotonic() + 30
    while True:
        try:
            end_offsets(address, topic)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def end_offsets(address: str, topic: str) -> int:
    """How many records the topic's partitions hold together, if none was ever removed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "counting"})
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, each), 30)[1]
            for each in partitions
        )
    finally:
        consumer.close()


def produce(
    address: str, topic: str, *, count: int, size: int, codec: str, acks: str
) -> dict[str, float]:
    """Sends as fast as the client can; ends when everything is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": acks,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "message.max.bytes": 2_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.list_topics(topic, 30)
    chunks = [
        [{"value": json_payload(index, size)} for index in range(start, start + CHUNK)]
        for start in range(0, 10 * CHUNK, CHUNK)
    ]
    sent, started = 0, time.perf_counter()
    for chunk in cycle(chunks):
        while len(producer) > QUEUED_MAX:
            producer.poll(0.005)
        sent += producer.produce_batch(topic, chunk)
        if sent >= count:
            break
    left = producer.flush(120)
    elapsed = time.perf_counter() - started
    if left:
        raise RuntimeError(f"{left} records were not acknowledged")
    return {"count": sent, "seconds": elapsed, "per_second": sent / elapsed}


def consume(address: str, topic: str, *, count: int) -> dict[str, float]:
    """Reads the topic from its beginning until that many records have come."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 0,  # its default of a second would be most of the time
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 4_000_000,
        }
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        started = time.perf_counter()
        consumer.assign([TopicPartition(topic, each, 0) for each in partitions])
        received = 0
        while received < count:
            messages = consumer.consume(CHUNK, 10)
            if not messages:
                raise RuntimeError(f"only {received} of {count} records came")
            received += len(messages)
        elapsed = time.perf_counter() - started
    finally:
        consumer.close()
    return {"count": received, "seconds": elapsed, "per_second": received / elapsed}


def latency_to_acknowledged(
    address: str, topic: str, *, per_second: int, seconds: float, acks: str
) -> dict[str, float]:
    """From the moment a record was due to be sent until its delivery report."""
    producer = Producer({"bootstrap.servers": address, "acks": acks, "linger.ms": 0})
    producer.list_topics(topic, 30)
    delays: list[float] = []

    def report(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        delays.append(time.perf_counter() - due[len(delays)])

    due: list[float] = []
    ended = threading.Event()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=poll)
    poller.start()
    payload = json_payload(1, 100)

    def send(at: float) -> None:
        due.append(at)
        producer.produce(topic, payload, partition=0, on_delivery=report)

    count = on_schedule(per_second, seconds, send)
    producer.flush(30)
    ended.set()
    poller.join()
    return summary(delays, count, leave_out=per_second)


def latency_to_consumed(
    address: str, topic: str, *, per_second: int, seconds: float, acks: str
) -> dict[str, float]:
    """From the moment a record was due to be sent until a consumer has it."""
    producer = Producer({"bootstrap.servers": address, "acks": acks, "linger.ms": 0})
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    total = int(per_second * seconds)
    delays: list[float] = []
    is_reading = threading.Event()

    def read() -> None:
        while len(delays) < total:
            message = consumer.poll(10)
            if message is None:
                return
            if message.error():
                raise RuntimeError(str(message.error()))
            value = message.value()
            assert isinstance(value, bytes), "we sent bytes"
            if value[:1] == b"w":  # a record that only shows that the consumer has started
                is_reading.set()
                continue
            delays.append(time.perf_counter() - int(value[:20]) / 1e9)

    reader = threading.Thread(target=read)
    reader.start()
    while not is_reading.wait(0.2):
        producer.produce(topic, b"w", partition=0)
        producer.poll(0)

    def send(at: float) -> None:
        producer.produce(topic, b"%020d" % int(at * 1e9) + bytes(80), partition=0)
        producer.poll(0)

    count = on_schedule(per_second, seconds, send)
    producer.flush(30)
    reader.join()
    consumer.close()
    return summary(delays, count, leave_out=per_second)


def on_schedule(per_second: int, seconds: float, send: Callable[[float], None]) -> int:
    """Sends when due, however late the one before was; each is told when it was due."""
    start = time.perf_counter() + 0.05
    count = int(per_second * seconds)
    for index in range(count):
        at = start + index / per_second
        wait_s = at - time.perf_counter()
        if wait_s > SPIN_S:
            time.sleep(wait_s - SPIN_S)
        while time.perf_counter() < at:
            pass
        send(at)
    return count


def summary(delays_s: list[float], sent: int, *, leave_out: int) -> dict[str, float]:
    """Percentiles in milliseconds, without the first second, in which caches and compilers warm."""
    if len(delays_s) != sent:
        raise RuntimeError(f"{sent} records were sent and {len(delays_s)} came back")
    ordered = sorted(delays_s[leave_out:])

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {
        "count": sent,
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "max_ms": 1000 * ordered[-1],
    }


LOADS: dict[str, Callable[..., Any]] = {
    load.__name__: load for load in (create_topics, end_offsets, produce, consume)
} | {load.__name__: load for load in (latency_to_acknowledged, latency_to_consumed)}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    result = LOADS[name](**arguments)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if isinstance(result, dict):
        result["client_cpu_s"] = usage.ru_utime + usage.ru_stime
    print(json.dumps(result))


if __name__ == "__main__":
    main()
