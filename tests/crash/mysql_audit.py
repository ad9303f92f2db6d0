"""A table whose triggers write down every change, and who changes it: in MySQL and MariaDB."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pymysql

NOTE = "INSERT INTO audit (at, letter, shop, id, note) VALUES (@at, {})"
GONE = NOTE.format("'d', OLD.shop, OLD.id, OLD.note")
MOVED = "OLD.shop <> NEW.shop OR OLD.id <> NEW.id"
THERE = NOTE.format(f"IF({MOVED}, 'c', 'u'), NEW.shop, NEW.id, NEW.note")
TABLES = (
    "CREATE TABLE orders (shop varchar(20), id int, note varchar(40), PRIMARY KEY (shop, id))",
    "INSERT INTO orders VALUES ('marker', 0, '')",
    "CREATE TABLE audit (number bigint AUTO_INCREMENT PRIMARY KEY, at bigint,"
    " letter char(1) NOT NULL, shop varchar(20), id int, note varchar(40))",
    "CREATE TRIGGER came AFTER INSERT ON orders FOR EACH ROW "
    + NOTE.format("'c', NEW.shop, NEW.id, NEW.note"),
    f"CREATE TRIGGER went AFTER DELETE ON orders FOR EACH ROW {GONE}",
    f"CREATE TRIGGER changed AFTER UPDATE ON orders FOR EACH ROW BEGIN IF {MOVED} THEN {GONE};"
    f" END IF; {THERE}; END",
)
"""No trigger fires for a TRUNCATE: the writer writes it down."""
CHANGES = "SELECT letter, shop, id, note, at FROM audit WHERE number > %s ORDER BY number"
EPOCH_S = 1_700_000_000
"""The time of the first transaction; each has a second of its own, as MariaDB logs whole ones."""


class MysqlAuditWriter:
    """Few keys, so that most transactions touch some of them more than once. Its transactions have
    commit times that it chooses, but for XA transactions of MySQL, which it leaves out."""

    rows_per_s = 400

    def __init__(self, *, seed: int, is_mariadb: bool) -> None:
        self._random, self._is_mariadb = Random(seed), is_mariadb
        self._xa_share = 0.1 if is_mariadb else 0
        self._next_s = EPOCH_S
        self._connection: Any = None
        self._truncating_s = 0
        """The time of a TRUNCATE whose answer has not come."""

    def transact(self, connection: "pymysql.Connection[Any]") -> int:
        with connection.cursor() as cursor:
            if connection is not self._connection:
                self._decide(cursor)
                self._connection = connection
            self._next_s += 1
            self._set_time(cursor, self._next_s)
            if self._random.random() < 0.03:
                return self._truncate(cursor)
            try:
                return self._write(cursor)
            except pymysql.IntegrityError:
                self._roll_back(cursor)
                return 0

    def _decide(self, cursor: Any) -> None:
        """Of an earlier connection: XA transactions that are prepared, and a TRUNCATE."""
        cursor.execute("SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5")
        cursor.execute("XA RECOVER")
        for *_, name in cursor.fetchall():
            xid = name.decode() if isinstance(name, bytes) else name
            self._set_time(cursor, int(xid))
            cursor.execute(f"XA {self._random.choice(('COMMIT', 'ROLLBACK'))} '{xid}'")
        if self._truncating_s and not self._count(cursor):
            self._note_truncate(cursor)
        self._truncating_s = 0

    def _set_time(self, cursor: Any, second: int) -> None:
        at_us = second * 1_000_000
        name = "timestamp" if self._is_mariadb else "original_commit_timestamp"
        cursor.execute(f"SET @at = {at_us}, {name} = {second if self._is_mariadb else at_us}")

    def _truncate(self, cursor: Any) -> int:
        if not self._count(cursor):
            return 0  # nobody could say afterwards whether it was done
        self._truncating_s = self._next_s
        cursor.execute("TRUNCATE orders")
        self._note_truncate(cursor)
        return 1

    def _count(self, cursor: Any) -> int:
        cursor.execute("SELECT count(*) FROM orders")
        [[count]] = cursor.fetchall()
        return int(count)

    def _note_truncate(self, cursor: Any) -> None:
        self._set_time(cursor, self._truncating_s)
        cursor.execute("INSERT INTO audit (at, letter) VALUES (@at, 't')")
        self._truncating_s = 0

    def _write(self, cursor: Any) -> int:
        is_xa, is_given_up = self._random.random() < self._xa_share, self._random.random() < 0.05
        cursor.execute(f"XA START '{self._next_s}'" if is_xa else "BEGIN")
        rows = 0
        for _ in range(self._random.choice((1, 1, 2, 3, 12))):
            rows += cursor.execute(*self._statement())
        cursor.execute("SAVEPOINT s")
        cursor.execute("UPDATE orders SET note = 'never' WHERE id = 1")
        cursor.execute("ROLLBACK TO s")
        if is_xa:
            cursor.execute(f"XA END '{self._next_s}'")
            cursor.execute(f"XA PREPARE '{self._next_s}'")
        end = "ROLLBACK" if is_given_up else "COMMIT"
        cursor.execute(f"XA {end} '{self._next_s}'" if is_xa else end)
        return 0 if is_given_up else rows

    def _roll_back(self, cursor: Any) -> None:
        """Also from within an XA transaction."""
        try:
            cursor.execute("ROLLBACK")
        except pymysql.OperationalError as error:
            if error.args[0] != XA_STATE:
                raise
            cursor.execute(f"XA END '{self._next_s}'")
            cursor.execute(f"XA ROLLBACK '{self._next_s}'")

    def _statement(self) -> tuple[str, Sequence[Any]]:
        shop, id = self._random.choice(("a", "é", "zz")), self._random.randrange(30)
        note, kind = str(self._random.random()), self._random.random()
        if kind < 0.3:
            return "DELETE FROM orders WHERE shop = %s AND id = %s", (shop, id)
        if kind < 0.4:
            moved = "UPDATE orders SET id = %s, note = %s WHERE shop = %s AND id = %s"
            return moved, (self._random.randrange(30), note, shop, id)
        put = "INSERT INTO orders VALUES (%s, %s, %s) ON DUPLICATE KEY UPDATE note = VALUES(note)"
        return put, (shop, id, note)


XA_STATE = 1399
"""The error of a statement that an XA transaction does not permit."""
