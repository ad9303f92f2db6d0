"""Where a record without a key goes: in turn, batch by batch (sticky), or where you say."""

import time
from collections import Counter

from basics import check, new_topic, producer, read_all

PARTITIONS = 3


def placed(topic: str) -> dict[str, int]:
    """Which partition each value ended in."""
    return {record.value: record.partition for record in read_all(topic)}


print("round-robin: the client names the partitions in turn")
topic = new_topic("round-robin", partitions=PARTITIONS)
writer = producer()
for number in range(9):
    writer.produce(topic, f"{number}", partition=number % PARTITIONS)
writer.flush()
spread = Counter(placed(topic).values())
print(f"  records per partition: {dict(sorted(spread.items()))}")
check(set(spread.values()) == {3}, "every partition holds the same number of records")

print("sticky: the client's default stays with one partition for a batch, then takes another")
topic = new_topic("sticky", partitions=PARTITIONS)
writer = producer(linger_ms=20, sticky_partitioning_linger_ms=10_000)
writer.produce(topic, "first")
writer.flush()  # from here on the client knows the partitions, and has chosen one
for number in range(100):
    writer.produce(topic, f"{number}")
writer.flush()
homes = set(placed(topic).values())
print(f"  100 records, written together: all in partition {homes}")
check(len(homes) == 1, "what is written together travels in one batch, to one partition")

writer = producer(linger_ms=0, sticky_partitioning_linger_ms=1)
for number in range(100, 200):
    writer.produce(topic, f"{number}")
    writer.flush()
    time.sleep(0.002)  # the choice of a partition lasts for 1 ms
spread = Counter(placed(topic).values())
print(f"  with 100 more, each a batch of its own: {dict(sorted(spread.items()))}")
check(len(spread) == PARTITIONS, "over many batches every partition gets its share")

print("a partitioner of your own: urgent orders have partition 0 to themselves")
topic = new_topic("custom", partitions=PARTITIONS)
writer = producer()


def partition_for(order: str) -> int:
    return 0 if order.startswith("urgent") else 1 + len(order) % (PARTITIONS - 1)


orders = ["urgent tea", "coffee", "cocoa", "urgent ice", "juice", "water!"]
for order in orders:
    writer.produce(topic, order, partition=partition_for(order))
writer.flush()
for order, home in sorted(placed(topic).items(), key=lambda item: item[1]):
    print(f"  partition {home}: {order}")
check(placed(topic) == {order: partition_for(order) for order in orders}, "it is obeyed")
