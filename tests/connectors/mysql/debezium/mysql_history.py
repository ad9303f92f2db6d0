"""A history of changes in MySQL or MariaDB, drawn from one seed: types, keys, transactions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.connectors.mysql.conftest import MysqlGuest
from tests.connectors.mysql.types.test_one_renderer import declared

SEED, STEPS, BIG_ROWS = 20_261_124, 120, 300
DATABASE = "hw_beside"
LENIENT = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+09:00'"
UTF8 = "SET NAMES utf8mb4"
LEFT_OUT = ("inet4", "inet6", "compressed")
"""Types that Debezium's MariaDB connector cannot read."""
NO_DATE = "2026-02-31"
"""It stops Debezium's snapshot."""
NO_YEAR = ("year", "0")
"""It stops the snapshot of Debezium's MariaDB connector."""
KINDS = (
    "CREATE TABLE h_plain (id int PRIMARY KEY, a varchar(50), b int DEFAULT 7,"
    " c decimal(10,2) NOT NULL DEFAULT 1.5, d timestamp(3) NULL)",
    "CREATE TABLE h_pair (a int, v json, b varchar(20), PRIMARY KEY (b, a))",
    "CREATE TABLE h_text (id varchar(20) CHARACTER SET latin1 PRIMARY KEY, t text, d datetime(6))",
    "CREATE TABLE `h weird é` (`cölumn 1` int PRIMARY KEY, `b ``q`` c` varchar(20))",
    "CREATE TABLE zz_end (id int PRIMARY KEY)",
)
FILLED = (
    "INSERT INTO h_plain (id, a, d) VALUES (1, 'there', '2026-01-01'), (2, NULL, NULL)",
    "INSERT INTO h_pair VALUES (1, '[1]', 'x'), (2, NULL, 'x')",
    "INSERT INTO h_text VALUES ('é', 'long', '2026-01-01 00:00:00.5')",
    "INSERT INTO `h weird é` VALUES (1, 'x')",
)
END = "INSERT INTO zz_end VALUES (1)"


def types_of(guest: MysqlGuest) -> dict[str, tuple[str, list[str]]]:
    """Table to the type of its column `v`, and literals of it."""
    tables = {
        f"t{at}": (kind, [each for each in literals if NO_DATE not in each])
        for at, (kind, literals) in enumerate(declared(guest))
    }
    if not guest.server.is_mariadb:
        return tables
    return {
        name: (kind, [each for each in literals if (kind, each) != NO_YEAR])
        for name, (kind, literals) in tables.items()
        if not any(word in kind for word in LEFT_OUT)
    }


def setup(guest: MysqlGuest) -> list[str]:
    types = types_of(guest)
    tables = [
        f"CREATE TABLE {name} (id int PRIMARY KEY, v {kind} NULL)"
        for name, (kind, _) in types.items()
    ]
    return [LENIENT, UTF8, *tables, *KINDS, *_rows(guest, first_id=1), *FILLED]


def statements(guest: MysqlGuest) -> list[str]:
    """Of one session; what follows while everybody streams."""
    changes = [each for name in types_of(guest) for each in _changed(name)]
    drawn = _History(Random(SEED)).drawn()
    return [LENIENT, UTF8, *_rows(guest, first_id=1001), *changes, *drawn, END]


def _rows(guest: MysqlGuest, *, first_id: int) -> list[str]:
    """All rows of a table in one statement, since what is compared are values."""
    found = []
    for name, (_, literals) in types_of(guest).items():
        rows = enumerate([*literals, "NULL"], start=first_id)
        values = ", ".join(f"({id}, {literal})" for id, literal in rows)
        found.append(f"INSERT INTO {name} VALUES {values}")
    return found


def _changed(name: str) -> list[str]:
    """Values before a change, and before a delete."""
    return [
        f"UPDATE {name} SET v = NULL WHERE id = 1001",
        f"DELETE FROM {name} WHERE id = 1002",
    ]


@dataclass(slots=True)
class _History:
    chance: Random
    keys: dict[str, list[int]] = field(default_factory=dict)
    next_id: int = 10

    def drawn(self) -> Iterator[str]:
        for step in range(STEPS):
            if step == STEPS // 2:
                yield self._big()
            yield from self._transaction()

    def _big(self) -> str:
        first, self.next_id = self.next_id, self.next_id + BIG_ROWS
        values = ", ".join(f"({id}, 'row {id}')" for id in range(first, self.next_id))
        return f"INSERT INTO h_plain (id, a) VALUES {values}"

    def _transaction(self) -> list[str]:
        if self.chance.random() < 0.03:
            self.keys["h_text"] = []
            return ["TRUNCATE TABLE h_text"]
        count = self.chance.choice((1, 1, 1, 2, 5))
        changes = [self._change() for _ in range(count)]
        if self.chance.random() < 0.2:
            keys = {table: list(held) for table, held in self.keys.items()}
            undone = [self._change() for _ in range(2)]
            self.keys = keys
            changes += ["SAVEPOINT s", *undone, "ROLLBACK TO s"]
        return ["BEGIN", *changes, "COMMIT"]

    def _change(self) -> str:
        draw = [self._plain, self._pair, self._text, self._weird]
        return self.chance.choice(draw)()

    def _new(self, table: str) -> int:
        self.next_id += 1
        self.keys.setdefault(table, []).append(self.next_id)
        return self.next_id

    def _word(self) -> str:
        return self.chance.choice(("NULL", "''", "'word'", "'naïve ☺'", "'tab\\t\"quote\"'"))

    def _number(self) -> str:
        return self.chance.choice(("NULL", "0", "-5", str(self.chance.randrange(10**6))))

    def _of(self, table: str, insert: str, update: str, delete: str, move: str) -> str:
        """One of these, with `{key}` and `{new}` filled in."""
        held, draw = self.keys.get(table), self.chance.random()
        if not held or draw < 0.35:
            return insert.format(new=self._new(table))
        old = self.chance.choice(held)
        if draw < 0.7:
            return update.format(key=old)
        held.remove(old)
        if draw < 0.85:
            return delete.format(key=old)
        return move.format(key=old, new=self._new(table))

    def _plain(self) -> str:
        return self._of(
            "h_plain",
            f"INSERT INTO h_plain (id, a, b, d) VALUES ({{new}}, {self._word()}, {self._number()},"
            f" '2026-11-21 0{self.chance.randrange(10)}:00:00.25')",
            f"UPDATE h_plain SET a = {self._word()}, c = c + 1 WHERE id = {{key}}",
            "DELETE FROM h_plain WHERE id = {key}",
            "UPDATE h_plain SET id = {new} WHERE id = {key}",
        )

    def _pair(self) -> str:
        return self._of(
            "h_pair",
            """INSERT INTO h_pair (a, b, v) VALUES ({new}, 'k', '{{"n": {new}}}')""",
            "UPDATE h_pair SET v = '[]' WHERE a = {key}",
            "DELETE FROM h_pair WHERE a = {key}",
            "UPDATE h_pair SET a = {new}, b = 'moved' WHERE a = {key}",
        )

    def _text(self) -> str:
        return self._of(
            "h_text",
            "INSERT INTO h_text VALUES ('é{new}', repeat('long ', 2000), '2026-11-21 01:02:03.04')",
            "UPDATE h_text SET d = NULL WHERE id = 'é{key}'",
            "DELETE FROM h_text WHERE id = 'é{key}'",
            "UPDATE h_text SET id = 'é{new}' WHERE id = 'é{key}'",
        )

    def _weird(self) -> str:
        return self._of(
            "weird",
            f"INSERT INTO `h weird é` VALUES ({{new}}, {self._word()})",
            "UPDATE `h weird é` SET `b ``q`` c` = 'other' WHERE `cölumn 1` = {key}",
            "DELETE FROM `h weird é` WHERE `cölumn 1` = {key}",
            "UPDATE `h weird é` SET `cölumn 1` = {new} WHERE `cölumn 1` = {key}",
        )
