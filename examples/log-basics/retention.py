"""Retention: a log forgets its oldest segments, by size and by age, and keeps its offsets."""

import time

from basics import check, consumer, new_topic, producer, read_all, unique, wait_until
from confluent_kafka import TopicPartition

SEGMENT_BYTES = 1 << 20  # the smallest that Kafka 4 allows
RECORD = "x" * 10_000


def start_and_end(topic: str) -> tuple[int, int]:
    reader = consumer(unique("surveyor"))
    low, high = reader.get_watermark_offsets(TopicPartition(topic, 0))
    reader.close()
    return low, high


def fill(topic: str, count: int) -> None:
    writer = producer(batch_size=100_000)
    for _ in range(count):
        writer.produce(topic, RECORD)
    writer.flush()


print("by size: at most 2 MiB, in segments of 1 MiB")
config = {"retention.bytes": str(2 * SEGMENT_BYTES), "segment.bytes": str(SEGMENT_BYTES)}
topic = new_topic("by-size", config=config)
fill(topic, 600)
print(f"  written: 600 records of 10 kB; offsets 0 to {start_and_end(topic)[1]}")
wait_until(lambda: start_and_end(topic)[0] > 0, "the oldest segments are deleted")
time.sleep(1)
start, end = start_and_end(topic)
kept_bytes = (end - start) * len(RECORD)
print(f"  kept: offsets {start} to {end}, {kept_bytes / 1e6:.1f} MB")
check(end == 600, "the newest records stay, and offsets never change")
check(kept_bytes >= 2 * SEGMENT_BYTES - len(RECORD), "never less is kept than was promised")
check(read_all(topic)[0].offset == start, "a reader from the beginning starts where the log does")

print("by age: at most one second")
topic = new_topic("by-age", config={"retention.ms": "1000"})
fill(topic, 10)
wait_until(lambda: start_and_end(topic) == (10, 10), "ten records older than a second are gone")
check(True, "what is older than a second is gone; the next record will have offset 10")
