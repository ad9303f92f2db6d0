"""Random DDL of MySQL and MariaDB."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pymysql

from tests.crash.captured_server import MysqlServer

KEYS = 200
"""Rows have the numbers from 0 up to here."""
BOUNDS = (0, 50, 100, 150, KEYS)
"""Of partitions."""
SPARED = ("id", "v", "k")
"""Columns that keep their names and types: the key, and a number that no other write has."""
TYPES = (
    "smallint", "int", "bigint", "text", "varchar(40)", "decimal(12,2)", "date",
    "enum('sad','fine','great')", "datetime(6)", "double", "blob", "bigint unsigned",
)  # fmt: skip
ADDED = "a text, b int, n decimal(12,2) DEFAULT 1, m enum('sad','fine','great')"
NOTE = "INSERT INTO audit (at, named, letter, id, v) VALUES (@at, 'plain', {})"
MOVED = "OLD.id <> NEW.id"
GONE = NOTE.format("'d', OLD.id, OLD.v")
THERE = NOTE.format(f"IF({MOVED}, 'c', 'u'), NEW.id, NEW.v")
EMPTIED = NOTE.format("'t', NULL, NULL")
"""Of a truncate, which has no trigger."""
TAKEN = "SELECT 1 FROM (SELECT id FROM {}) others WHERE id = {}"
"""MariaDB fires the trigger of an update also where IGNORE leaves the row as it is, since another
row has its new key."""
PARTS = ", ".join(f"PARTITION p{low} VALUES LESS THAN ({high})" for low, high in pairwise(BOUNDS))
TABLES: Mapping[str, str] = {
    "plain": f"CREATE TABLE plain (id int PRIMARY KEY, v bigint, {ADDED})",
    "keyed": "CREATE TABLE keyed (id int PRIMARY KEY, v bigint, k int NOT NULL DEFAULT 1,"
    f" {ADDED})",
    "parts": f"CREATE TABLE parts (id int PRIMARY KEY, v bigint, {ADDED})"
    f" PARTITION BY RANGE (id) ({PARTS})",
}
AUDIT = (
    "CREATE TABLE audit (number bigint AUTO_INCREMENT PRIMARY KEY, at bigint, named varchar(20),"
    " letter char(1) NOT NULL, id int, v bigint)",
)
TRIGGERS = (
    "CREATE TRIGGER came AFTER INSERT ON plain FOR EACH ROW " + NOTE.format("'c', NEW.id, NEW.v"),
    f"CREATE TRIGGER went AFTER DELETE ON plain FOR EACH ROW {GONE}",
    f"CREATE TRIGGER changed AFTER UPDATE ON plain FOR EACH ROW BEGIN IF {MOVED} THEN {GONE};"
    f" END IF; {THERE}; END",
)
COLUMNS = (
    "SELECT column_name, column_type FROM information_schema.columns"
    " WHERE table_schema = database() AND table_name = %s ORDER BY ordinal_position"
)
KEY = (
    "SELECT column_name FROM information_schema.statistics WHERE table_schema = database()"
    " AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index"
)
PARTITIONS = (
    "SELECT partition_name FROM information_schema.partitions WHERE table_schema = database()"
    " AND table_name = %s AND partition_name IS NOT NULL ORDER BY partition_ordinal_position"
)
CHANGED = "SELECT at, letter, id, v FROM audit WHERE named = %s AND number > %s ORDER BY number"
LOCKED = {1205, 1213}
"""Lock wait timeout, deadlock."""
SESSION = (
    "SET sql_mode = '', lock_wait_timeout = 1, innodb_lock_wait_timeout = 1,"
    " binlog_row_image = 'FULL', binlog_format = 'ROW'"
)


@dataclass(frozen=True, slots=True)
class MysqlShape:
    name: str
    columns: dict[str, str]
    """Name to type."""
    partitions: Sequence[str]
    keeps_types: bool

    @property
    def free(self) -> list[str]:
        return [name for name in self.columns if name not in SPARED]


def literal(random: Random, kind: str) -> str:
    number = random.randrange(30_000)
    if random.random() < 0.15:
        return "NULL"
    if kind == "date":
        return f"DATE_ADD('2024-01-01', INTERVAL {number % 1000} DAY)"
    if kind.startswith("enum"):
        return f"'{random.choice(('sad', 'fine', 'great'))}'"
    if kind.startswith("decimal"):
        return str(number / 100)
    if kind.startswith("datetime"):
        return f"TIMESTAMPADD(MICROSECOND, {number * 1_000_001}, '2024-01-01')"
    if kind == "double":
        return repr(number / 7)
    if kind == "blob":
        return f"x'{number:04x}00'"
    if kind.endswith("unsigned"):
        return str((1 << 64) - 1 - number)
    return f"'t{number}'" if kind in ("text", "varchar(40)") else str(number)


def version(random: Random) -> int:
    return random.getrandbits(50)


def change_of_rows(random: Random, shape: MysqlShape) -> str:
    """One statement: rows come, change, get other keys, or go."""
    id, kind, name = random.randrange(KEYS), random.random(), shape.name
    if kind < 0.2:
        return f"DELETE FROM {name} WHERE id BETWEEN {id} AND {id + random.randrange(3)}"
    if kind < 0.3:
        other = random.randrange(KEYS)
        moved = f"UPDATE IGNORE {name} SET id = {other}, v = {version(random)}"
        return f"{moved} WHERE id = {id} AND NOT EXISTS ({TAKEN.format(name, other)})"
    chosen = [each for each in shape.free if random.random() < 0.6]
    chosen += ["k"] if "k" in shape.columns and random.random() < 0.3 else []
    values = {each: _value(random, shape, each) for each in chosen}
    if kind < 0.6:
        setting = "".join(f", {each} = {value}" for each, value in values.items())
        where = f"id BETWEEN {id} AND {id + random.choice((0, 0, 5))}"
        return f"UPDATE IGNORE {name} SET v = {version(random)}{setting} WHERE {where}"
    names = "".join(f", {each}" for each in values)
    given = "".join(f", {value}" for value in values.values())
    return f"INSERT IGNORE INTO {name} (id, v{names}) VALUES ({id}, {version(random)}{given})"


def _value(random: Random, shape: MysqlShape, column: str) -> str:
    if column == "k":
        return str(random.randrange(1, 4))
    return literal(random, shape.columns[column])


Change = Callable[[Random, MysqlShape], Sequence[str]]


def add(random: Random, shape: MysqlShape) -> Sequence[str]:
    kind = random.choice(TYPES)
    defaults = [] if kind in ("text", "blob") else [f" DEFAULT {_constant(random, kind)}"]
    default = random.choice(["", *defaults])
    place = random.choice(("", "", " FIRST", " AFTER id"))
    return [f"ALTER TABLE {shape.name} ADD {_new(random, shape, kind)} {kind}{default}{place}"]


def _constant(random: Random, kind: str) -> str:
    return "'2024-05-06'" if kind.startswith("date") else literal(random, kind)


def drop(random: Random, shape: MysqlShape) -> Sequence[str]:
    return [f"ALTER TABLE {shape.name} DROP {random.choice(shape.free)}"]


def drop_and_add(random: Random, shape: MysqlShape) -> Sequence[str]:
    column = random.choice(shape.free)
    kind = shape.columns[column]
    kind = kind if shape.keeps_types else random.choice([kind, random.choice(TYPES)])
    parts = (f"DROP {column}", f"ADD {column} {kind}")
    together = [f"ALTER TABLE {shape.name} {', '.join(parts)}"]
    return random.choice([[f"ALTER TABLE {shape.name} {part}" for part in parts], together])


def rename(random: Random, shape: MysqlShape) -> Sequence[str]:
    column = random.choice(shape.free)
    new = _new(random, shape, shape.columns[column])
    return [f"ALTER TABLE {shape.name} RENAME COLUMN {column} TO {new}"]


def exchange_names(random: Random, shape: MysqlShape) -> Sequence[str]:
    one, other = random.sample(shape.free, 2)
    if shape.keeps_types and shape.columns[one] != shape.columns[other]:
        return []
    return [
        f"ALTER TABLE {shape.name} RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}"
    ]


def convert(random: Random, shape: MysqlShape) -> Sequence[str]:
    """To any type, with whatever the server makes of the values."""
    column = random.choice(shape.free)
    kind = shape.columns[column] if shape.keeps_types else random.choice(TYPES)
    return [f"ALTER TABLE {shape.name} MODIFY {column} {kind}"]


def label(random: Random, shape: MysqlShape) -> Sequence[str]:
    """The same labels with other numbers."""
    enums = [name for name in shape.free if shape.columns[name].startswith("enum")]
    if not enums or shape.keeps_types:
        return []
    labels = ["sad", "fine", "great", f"l{random.randrange(1_000)}"]
    random.shuffle(labels)
    kind = f"enum({', '.join(map(repr, labels))})"
    return [f"ALTER TABLE {shape.name} MODIFY {random.choice(enums)} {kind}"]


def truncate(random: Random, shape: MysqlShape) -> Sequence[str]:
    return [f"TRUNCATE {shape.name}"]


def rebuild(random: Random, shape: MysqlShape) -> Sequence[str]:
    how = random.choice(("ENGINE = InnoDB", "FORCE", "COMMENT = 'other'", "ADD INDEX (v)"))
    return [f"ALTER TABLE {shape.name} {how}"]


def unlog(random: Random, shape: MysqlShape) -> Sequence[str]:
    """Changes that are not logged as whole rows."""
    change = f"UPDATE {shape.name} SET v = {version(random)} WHERE id % 9 = 3"
    if random.random() < 0.5:
        return [f"SET binlog_row_image = MINIMAL; {change}; SET binlog_row_image = FULL"]
    return [f"SET binlog_format = STATEMENT; {change}; SET binlog_format = ROW"]


def swap(random: Random, shape: MysqlShape) -> Sequence[str]:
    """As gh-ost does."""
    name = shape.name
    copied = ", ".join(shape.columns)
    return [
        f"CREATE TABLE _{name}_gho LIKE {name}",
        f"INSERT INTO _{name}_gho ({copied}) SELECT {copied} FROM {name}",
        f"RENAME TABLE {name} TO _{name}_del, _{name}_gho TO {name}",
        f"DROP TABLE _{name}_del",
    ]


def leave_and_come_back(random: Random, shape: MysqlShape) -> Sequence[str]:
    name = shape.name
    return [
        f"RENAME TABLE {name} TO away",
        f"UPDATE away SET v = {version(random)} WHERE id % 5 = 1",
        f"RENAME TABLE away TO {name}",
    ]


def change_key(random: Random, shape: MysqlShape) -> Sequence[str]:
    """Rows that one key tells apart may be one by the next."""
    if shape.keeps_types:
        return []
    key, name = random.choice(("id", "id, k", "k, id")), shape.name
    return [
        f"DELETE a FROM {name} a JOIN {name} b ON a.id = b.id AND a.k > b.k",
        f"ALTER TABLE {name} DROP PRIMARY KEY, ADD PRIMARY KEY ({key})",
    ]


def change_key_type(random: Random, shape: MysqlShape) -> Sequence[str]:
    if shape.keeps_types:
        return []
    kind = random.choice(("int", "bigint", "varchar(20)"))
    return [f"ALTER TABLE {shape.name} MODIFY k {kind} NOT NULL DEFAULT '1'"]


def truncate_part(random: Random, shape: MysqlShape) -> Sequence[str]:
    return [f"ALTER TABLE {shape.name} TRUNCATE PARTITION {random.choice(shape.partitions)}"]


def drop_part(random: Random, shape: MysqlShape) -> Sequence[str]:
    """Never the last ones: rows of the others go into the next partition."""
    if len(shape.partitions) < 3:
        return []
    return [f"ALTER TABLE {shape.name} DROP PARTITION {shape.partitions[0]}"]


def exchange_part(random: Random, shape: MysqlShape) -> Sequence[str]:
    part = random.choice(shape.partitions)
    return [
        "DROP TABLE IF EXISTS other",
        f"CREATE TABLE other LIKE {shape.name}",
        "ALTER TABLE other REMOVE PARTITIONING",
        f"ALTER TABLE {shape.name} EXCHANGE PARTITION {part} WITH TABLE other",
    ]


def _new(random: Random, shape: MysqlShape, kind: str) -> str:
    number = random.randrange(30)
    index = next((at for at, each in enumerate(TYPES) if _plain(each) == _plain(kind)), len(TYPES))
    return f"c{number}_{index}" if shape.keeps_types else f"c{number}"


def _plain(kind: str) -> str:
    """Without its length, or its labels."""
    return re.sub(r"\(.*\)", "", kind)


COMMON: tuple[Change, ...] = (
    add, add, drop, drop_and_add, rename, exchange_names, convert, label, truncate, rebuild,
)  # fmt: skip
CHANGES: Mapping[str, Sequence[Change]] = {
    "plain": COMMON,
    "parts": (*COMMON, truncate_part, drop_part, exchange_part),
    "keyed": (*COMMON, change_key, change_key, change_key_type, swap, leave_and_come_back),
}


@dataclass(frozen=True)
class MysqlDdl:
    server: MysqlServer
    tables: Sequence[str] = tuple(TABLES)
    changes: Mapping[str, Sequence[Change]] = field(default_factory=lambda: CHANGES)
    in_place: Sequence[Change] = (rename, add, exchange_names, truncate)
    _transactions: list[int] = field(default_factory=lambda: [0])
    """The number of the newest transaction."""

    def made(self) -> Sequence[str]:
        rows = ", ".join(f"({id}, {id}, 'a{id}', {id})" for id in range(KEYS) if id % 5)
        return [
            *AUDIT,
            *TABLES.values(),
            *(f"INSERT INTO {name} (id, v, a, b) VALUES {rows}" for name in TABLES),
            *TRIGGERS,
        ]

    def publish(self, database: str, pipeline: str) -> None:
        """Nothing has to be allowed."""

    def unlog(self, random: Random, shape: Any) -> Sequence[str]:
        return unlog(random, shape)

    def shape_of(self, connection: Any, table: str, *, keeps_types: bool) -> MysqlShape:
        with connection.cursor() as cursor:
            cursor.execute(COLUMNS, [table])
            columns = {name: _text(kind) for name, kind in cursor.fetchall()}
            cursor.execute(PARTITIONS, [table])
            partitions = [name for (name,) in cursor.fetchall()]
        return MysqlShape(table, columns, partitions, keeps_types)

    def change_of_rows(self, random: Random, shape: MysqlShape) -> str:
        return change_of_rows(random, shape)

    def is_alone(self, statements: str) -> bool:
        """DDL commits what was before it."""
        words = ("ALTER", "TRUNCATE", "RENAME", "CREATE", "DROP TABLE", "SET binlog")
        return any(each in statements for each in words)

    def execute(self, connection: Any, statements: str) -> None:
        parts = statements.split("; ")
        with connection.cursor() as cursor:
            cursor.execute(f"{SESSION}, {self._moment()}")
            if len(parts) == 1 or self.is_alone(statements):
                for part in parts:
                    cursor.execute(part)
                if statements == "TRUNCATE plain":
                    cursor.execute(EMPTIED)
                return
            cursor.execute("BEGIN")
            try:
                for part in parts:
                    cursor.execute(part)
            except pymysql.MySQLError:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def _moment(self) -> str:
        """Returns what the audit takes for one moment: a transaction, or in MariaDB, which logs no
        finer times, all those of a second. The log has the second that the session is told."""
        if self.server.server.is_mariadb:
            second = int(time.time())
            return f"timestamp = {second}, @at = {second}"
        self._transactions[0] += 1
        return f"@at = {self._transactions[0]}"

    def is_locked(self, error: Exception) -> bool:
        return isinstance(error, pymysql.OperationalError) and error.args[0] in LOCKED

    def is_refused(self, error: Exception) -> bool:
        """Not a connection that is gone."""
        is_known = isinstance(error, pymysql.DatabaseError)
        return is_known and error.args[0] not in (2006, 2013)

    def columns_of(self, database: str, table: str) -> dict[str, str]:
        rows = self.server.execute(database, COLUMNS, table)
        return {name: _text(kind) for name, kind in rows}

    def key_of(self, database: str, table: str) -> list[str]:
        return [name for name, *_ in self.server.execute(database, KEY, table)]

    def audit_of(self, database: str, table: str, since: int) -> list[tuple[str, str, int, int]]:
        return self.server.execute(database, CHANGED, table, since)


def _text(kind: str | bytes) -> str:
    """MySQL's catalogue has types as bytes; MariaDB and MySQL 8.0 show the width of numbers."""
    found = kind.decode() if isinstance(kind, bytes) else kind
    return re.sub(r"^(smallint|int|bigint)\(\d+\)", r"\1", found)
