"""At most once, at least once, exactly once: it depends on when the position is saved."""

from collections.abc import Callable, Iterator

from basics import check, consumer, new_topic, producer, read, read_all, texts, unique, write
from confluent_kafka import Consumer, TopicPartition

ORDERS = ["tea", "milk", "salt", "rice", "soap"]


class Crash(Exception):
    """The worker's process dies here."""


def at_most_once(reader: Consumer, parcels: str, crash_at: str) -> None:
    """Saves the position first: what it was working on when it died is lost."""
    for order in orders_from(reader):
        reader.commit(asynchronous=False)
        if order == crash_at:
            raise Crash
        write(parcels, [order])


def at_least_once(reader: Consumer, parcels: str, crash_at: str) -> None:
    """Saves the position afterwards: what it was working on when it died is done again."""
    for order in orders_from(reader):
        write(parcels, [order])
        if order == crash_at:
            raise Crash
        reader.commit(asynchronous=False)


def exactly_once(reader: Consumer, parcels: str, crash_at: str) -> None:
    """Saves the position in the same transaction as the result: both happen, or neither."""
    writer = producer(transactional_id=f"packer-of-{parcels}")
    writer.init_transactions()  # aborts what a crashed predecessor left open, and shuts it out
    for order in orders_from(reader):
        writer.begin_transaction()
        writer.produce(parcels, order)
        writer.flush()
        if order == crash_at:
            raise Crash
        assigned: list[TopicPartition] = reader.assignment()
        writer.send_offsets_to_transaction(
            reader.position(assigned), reader.consumer_group_metadata()
        )
        writer.commit_transaction()


def orders_from(reader: Consumer) -> Iterator[str]:
    order = ""
    while order != ORDERS[-1]:
        order = read(reader, 1)[0].value
        yield order


def parcels_of(worker: Callable[[Consumer, str, str], None]) -> list[str]:
    """Lets the worker copy the orders, dying once at "salt"; returns what a reader finds."""
    orders, parcels, group = new_topic("orders"), new_topic("parcels"), unique("packers")
    write(orders, ORDERS)
    for crash_at in ("salt", "never"):
        reader = consumer(group)
        reader.subscribe([orders])
        try:
            worker(reader, parcels, crash_at)
        except Crash:
            print(f"  it dies at {crash_at}, and starts again")
        finally:
            reader.close()  # so that the group need not wait for the dead worker's session to end
    found = texts(read_all(parcels, isolation_level="read_committed"))
    print(f"  packed: {', '.join(found)}")
    return found


print("at most once: the position is saved before the work")
found = parcels_of(at_most_once)
check(found == ["tea", "milk", "rice", "soap"], "salt is lost, and nothing came twice")

print("at least once: the position is saved after the work")
found = parcels_of(at_least_once)
check(found == ["tea", "milk", "salt", "salt", "rice", "soap"], "nothing is lost, salt came twice")

print("exactly once: the position is saved with the work, in one transaction")
found = parcels_of(exactly_once)
check(found == ORDERS, "nothing is lost, and nothing came twice")
