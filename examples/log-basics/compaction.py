"""Compaction makes a topic a table: the newest record of each key stays, older ones may go."""

import time

from basics import Record, check, new_topic, producer, read_all, wait_until

topic = new_topic(
    "accounts",
    config={
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "500",  # only closed segments are compacted; by default a week is one
        "delete.retention.ms": "60000",
    },
)
writer = producer()
balances: dict[str, int] = {}


def set_balance(name: str, balance: int | None) -> None:
    """A record without a value, a tombstone, deletes its key."""
    writer.produce(topic, None if balance is None else str(balance), name)
    if balance is None:
        balances.pop(name)
    else:
        balances[name] = balance


def table(records: list[Record]) -> dict[str, int]:
    """A topic read from the start, last word wins."""
    rows: dict[str, int] = {}
    for record in records:
        if record.is_tombstone:
            rows.pop(record.key, None)
        else:
            rows[record.key] = int(record.value)
    return rows


for balance in range(100):
    for name in ("ada", "bob", "cleo"):
        set_balance(name, 10 * balance)
set_balance("bob", None)
writer.flush()
before = read_all(topic)
print(f"written: {len(before)} changes of three accounts; bob's was closed at the end")

time.sleep(0.6)
set_balance("dan", 7)  # the first record after segment.ms closes the segment before it
writer.flush()
wait_until(lambda: len(read_all(topic)) <= 4, "only the newest record of each key is left")

after = read_all(topic)
print("left after compaction:")
for record in after:
    value = "(deleted)" if record.is_tombstone else record.value
    print(f"  offset {record.offset:>3}  {record.key:<5} {value}")
check(table(after) == balances, f"the table is the same as before: {table(after)}")
check(set(after[:-1]) <= set(before), "what stayed is unchanged, and has kept its offset")
check(after[-2].is_tombstone, "the deletion itself stays for a while, so that readers hear of it")
