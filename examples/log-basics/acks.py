"""What a producer waits for: acks=0 for nothing, acks=1 for the leader, acks=all for safety."""

import time

from basics import check, new_topic, producer, read_all, texts
from confluent_kafka import KafkaError, Message

topic = new_topic("acks")
COUNT = 200


def write_one_by_one(acks: str) -> list[int | None]:
    """Writes COUNT records; returns the offsets that the broker reported."""
    offsets: list[int | None] = []

    def note(_: KafkaError | None, message: Message) -> None:
        offsets.append(message.offset())

    writer = producer(acks=acks, linger_ms=0)
    for number in range(COUNT):
        writer.produce(topic, f"acks={acks} {number}", on_delivery=note)
        writer.flush()  # one at a time, to see what a single record has to wait for
    return offsets


for acks in ("0", "1", "all"):
    started = time.perf_counter()
    offsets = write_one_by_one(acks)
    each_ms = 1000 * (time.perf_counter() - started) / COUNT
    known = sum(offset is not None for offset in offsets)
    print(f"acks={acks:<3} {each_ms:5.2f} ms a record; the offset is known for {known} of {COUNT}")
    if acks == "0":
        check(known == 0, "acks=0: sent, and nobody says whether or where it arrived")
    else:
        check(known == COUNT, f"acks={acks}: every record was answered with its offset")

values = texts(read_all(topic))
for acks in ("1", "all"):
    kept = [value for value in values if value.startswith(f"acks={acks} ")]
    check(kept == [f"acks={acks} {n}" for n in range(COUNT)], f"acks={acks}: all are in the log")
print("  (acks=1 survives a crash of the process; acks=all survives a power cut, too)")
