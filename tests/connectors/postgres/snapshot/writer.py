"""People who insert, change and delete while a table is being read."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import psycopg

from tests.databases import Guest

KEYS = 2_000
FRESH = 10_000_000
"""Keys that each writer has for itself, more than it comes to."""
FILLER = "repeat('x', 200)"
ORDERS = (
    "CREATE TABLE orders (id int PRIMARY KEY, amount int, note text)",
    f"INSERT INTO orders SELECT i, i, {FILLER} FROM generate_series(1, {KEYS}) i",
    "ANALYZE orders",
)
AUDIT = (
    "CREATE TABLE audit (at int, what text)",
    f"INSERT INTO audit SELECT i, {FILLER} FROM generate_series(1, 1000) i",
    "ANALYZE audit",
)


@contextmanager
def writers(guest: Guest, *, seed: int) -> Iterator[None]:
    """As fast as they can, in transactions of a few rows, some of which are taken back."""
    stop = threading.Event()

    def write(number: int) -> None:
        random, fresh = Random(seed * 10 + number), FRESH * (number + 1)
        with psycopg.connect(guest.owner) as connection:
            while not stop.is_set():
                try:
                    for _ in range(random.randrange(1, 6)):
                        fresh += 1
                        connection.execute(statement(random, fresh).encode())
                    (connection.commit if random.random() < 0.9 else connection.rollback)()
                except (
                    psycopg.errors.DeadlockDetected,
                    psycopg.errors.SerializationFailure,  # of a row that went to another partition
                ):
                    connection.rollback()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def statement(random: Random, fresh: int) -> str:
    key, choice = random.randrange(1, KEYS), random.random()
    if choice < 0.5:
        return f"UPDATE orders SET amount = amount + 1 WHERE id = {key}"
    if choice < 0.7:
        return f"DELETE FROM orders WHERE id = {key}"
    if choice < 0.75:
        return f"UPDATE orders SET id = {fresh} WHERE id = {key}"
    if choice < 0.9:
        return f"INSERT INTO orders VALUES ({fresh}, 0, 'new')"
    return f"INSERT INTO audit VALUES ({fresh}, 'new')"
