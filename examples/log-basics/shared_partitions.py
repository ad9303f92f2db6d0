"""The consumers of one group share three partitions: four of them, then three, two and one."""

from itertools import chain

from basics import Record, check, consumer, new_topic, record_of, texts, unique, wait_until, write
from confluent_kafka import Consumer

topic, group = new_topic("sharing", partitions=3), unique("team")
team: dict[str, Consumer] = {}
received: list[Record] = []


def join(name: str) -> None:
    # A short heartbeat lets the others hear of a change soon; the default is 3 s.
    team[name] = consumer(group, client_id=name, heartbeat_interval_ms=200)
    team[name].subscribe([topic])


def shares() -> dict[str, list[int]]:
    """Lets everybody work for a moment, then tells who holds which partitions."""
    for member in team.values():
        message = member.poll(0.05)
        if message is not None:
            received.append(record_of(message))
    return {
        name: sorted(part.partition for part in member.assignment())
        for name, member in team.items()
    }


def show_shares(sizes: list[int]) -> None:
    """Waits until the group has settled into shares of these sizes, with nothing held twice."""

    def is_settled() -> bool:
        held = shares().values()
        return sorted(map(len, held)) == sizes and sorted(chain(*held)) == [0, 1, 2]

    wait_until(is_settled, f"{len(team)} consumers hold {sizes} partitions")
    for name, partitions in shares().items():
        print(f"  {name}: {', '.join(f'partition {n}' for n in partitions) or 'idle, in reserve'}")
    check(True, f"{len(team)} consumers: every partition has exactly one of them")


print("four consumers start together:")
for name in ("ann", "ben", "cat", "dov"):
    join(name)
show_shares([0, 1, 1, 1])

for leaver, sizes in (("ann", [1, 1, 1]), ("ben", [1, 2]), ("cat", [3])):
    print(f"{leaver} leaves, the group rebalances:")
    team.pop(leaver).close()
    show_shares(sizes)

print("the last one reads what is written to all three:")
written = [f"record {number}" for number in range(30)]
for number, value in enumerate(written):
    write(topic, [value], key=f"key {number}")
wait_until(lambda: bool(shares()) and len(received) >= len(written), "all records arrive")
check(sorted(texts(received)) == sorted(written), "nothing is left unread, nothing read twice")
team["dov"].close()
