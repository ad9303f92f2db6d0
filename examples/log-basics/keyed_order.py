"""Records with the same key go to the same partition, and stay in the order they were written."""

from collections import defaultdict

from basics import check, new_topic, producer, read_all

topic = new_topic("keyed-order", partitions=3)
customers = ["ada", "bob", "cleo", "dan", "eve", "fay"]

print("six customers each do five things, in three partitions:")
writer = producer()
for step in range(5):
    for customer in customers:
        writer.produce(topic, f"step {step}", customer)
writer.flush()

steps: dict[str, list[str]] = defaultdict(list)
homes: dict[str, set[int]] = defaultdict(set)
for record in read_all(topic):
    steps[record.key].append(record.value)
    homes[record.key].add(record.partition)
for customer in customers:
    print(f"  {customer:<5} partition {homes[customer]}: {', '.join(steps[customer])}")

check(all(len(home) == 1 for home in homes.values()), "a key lives in exactly one partition")
check(
    all(steps[customer] == [f"step {step}" for step in range(5)] for customer in customers),
    "the records of a key come back in the order they were written",
)
check(len(set.union(*homes.values())) > 1, "different keys share the work between partitions")
