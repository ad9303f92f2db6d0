"""A history of changes drawn from one seed: every kind of table, key, transaction and statement."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.debezium import values

SEED, STEPS = 20_261_121, 260
BIG_ROWS = 300
WEIRD = '"Weird Schéma"."Tàble ""x"" y"'

KINDS = f"""
CREATE TABLE h_plain (
    id int4 PRIMARY KEY, a text, b int4 DEFAULT 7, c numeric(10,2) NOT NULL DEFAULT 1.5,
    d timestamptz
);
CREATE TABLE h_full (id int8 PRIMARY KEY, a text, b int4, c numeric, d timestamp(3));
ALTER TABLE h_full REPLICA IDENTITY FULL;
CREATE TABLE h_pair (a int4, v jsonb, b text, PRIMARY KEY (b, a));
CREATE TABLE h_nokey (a int4, b text);
ALTER TABLE h_nokey REPLICA IDENTITY FULL;
CREATE TABLE h_index (v text, u int4 NOT NULL UNIQUE, w int4);
ALTER TABLE h_index REPLICA IDENTITY USING INDEX h_index_u_key;
CREATE TABLE h_part (id int4 PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE h_part_low PARTITION OF h_part FOR VALUES FROM (0) TO (100);
CREATE TABLE h_part_high PARTITION OF h_part FOR VALUES FROM (100) TO (100000);
CREATE TABLE h_toast (
    id int4 PRIMARY KEY, big text, raw bytea, js jsonb, n int4, words text[], nums int4[],
    longs int8[], size numeric, days date[], pairs hw.hstore
);
ALTER TABLE h_toast ALTER big SET STORAGE EXTERNAL, ALTER raw SET STORAGE EXTERNAL,
    ALTER js SET STORAGE EXTERNAL, ALTER words SET STORAGE EXTERNAL,
    ALTER nums SET STORAGE EXTERNAL, ALTER longs SET STORAGE EXTERNAL,
    ALTER size SET STORAGE EXTERNAL, ALTER days SET STORAGE EXTERNAL,
    ALTER pairs SET STORAGE EXTERNAL;
CREATE TABLE h_made (id int4 PRIMARY KEY, a int4, twice int4 GENERATED ALWAYS AS (a * 2) STORED);
CREATE SCHEMA "Weird Schéma";
CREATE TABLE {WEIRD} ("Cölumn 1" int4 PRIMARY KEY, "b ""q"" c" text);
CREATE TABLE zz_end (id int4 PRIMARY KEY);
"""
FILLED = (
    "INSERT INTO h_plain (id, a, d) VALUES (1, 'there', '2026-01-01'), (2, NULL, NULL)",
    "INSERT INTO h_full VALUES (1, 'there', 1, 1.10, '2026-01-01 00:00:00.5')",
    "INSERT INTO h_pair VALUES (1, '[1]', 'x'), (2, NULL, 'x')",
    "INSERT INTO h_nokey VALUES (1, 'a'), (1, 'a'), (NULL, NULL)",
    "INSERT INTO h_index VALUES ('a', 1, 1), ('b', 2, NULL)",
    "INSERT INTO h_part VALUES (1, 'low'), (200, 'high')",
    f"INSERT INTO {WEIRD} VALUES (1, 'x')",
    "INSERT INTO h_made (id, a) VALUES (1, 1)",
)
END = "INSERT INTO zz_end VALUES (1)"
DDL = (
    "ALTER TABLE h_plain ADD COLUMN e int8 DEFAULT 5",
    "ALTER TABLE h_full DROP COLUMN b",
    "ALTER TABLE h_plain RENAME COLUMN a TO renamed",
    "ALTER TABLE h_full ALTER COLUMN d TYPE timestamp(6)",
    "ALTER TABLE h_pair ADD COLUMN t timestamptz(3) DEFAULT '2026-02-03 04:05:06.789+00'",
    "CREATE TABLE h_late (id int4 PRIMARY KEY, v float8)",
    "ALTER TABLE h_plain ALTER COLUMN c DROP NOT NULL",
)
"""In this order, spread over the history."""


def setup() -> list[str]:
    return [values.create_tables(), KINDS, *values.insert_rows(first_id=1), *FILLED]


def statements() -> list[str]:
    """What happens while everybody streams; one string is one implicit or whole transaction."""
    return [*values.insert_rows(first_id=1001), *_History(Random(SEED)).drawn(), END]


@dataclass(slots=True)
class _History:
    chance: Random
    keys: dict[str, list[int]] = field(default_factory=dict)
    next_id: int = 10
    text: str = "a"
    """The column of h_plain, which gets another name."""
    has_late: bool = False

    def drawn(self) -> Iterator[str]:
        ddl = {(place + 1) * STEPS // (len(DDL) + 1): each for place, each in enumerate(DDL)}
        for step in range(STEPS):
            if step in ddl:
                yield self._ddl(ddl[step])
            elif step == STEPS // 2:
                yield self._big()
            else:
                yield self._transaction()

    def _ddl(self, statement: str) -> str:
        if "RENAME" in statement:
            self.text = "renamed"
        self.has_late = self.has_late or "h_late" in statement
        return statement

    def _big(self) -> str:
        first = self.next_id
        self.next_id += BIG_ROWS
        return (
            f"INSERT INTO h_plain (id, {self.text}) SELECT i, 'row ' || i"
            f" FROM generate_series({first}, {self.next_id - 1}) i"
        )

    def _transaction(self) -> str:
        count = self.chance.choice((1, 1, 1, 2, 5))
        changes = [self._change() for _ in range(count)]
        if self.chance.random() < 0.2:
            keys = {table: list(held) for table, held in self.keys.items()}
            undone = "; ".join(self._change() for _ in range(2))
            self.keys = keys
            changes.append(f"SAVEPOINT s; {undone}; ROLLBACK TO s")
        return "; ".join(["BEGIN", *changes, "COMMIT"])

    def _change(self) -> str:
        draw = [
            self._plain, self._full, self._pair, self._nokey, self._index, self._part,
            self._toast, self._made, self._weird, self._other,
        ]  # fmt: skip
        return self.chance.choice(draw)()

    def _key(self, table: str) -> int | None:
        held = self.keys.get(table)
        return self.chance.choice(held) if held else None

    def _new(self, table: str) -> int:
        self.next_id += 1
        self.keys.setdefault(table, []).append(self.next_id)
        return self.next_id

    def _moved(self, table: str, old: int) -> int:
        self.keys[table].remove(old)
        return self._new(table)

    def _gone(self, table: str, old: int) -> int:
        self.keys[table].remove(old)
        return old

    def _word(self) -> str:
        return self.chance.choice(("NULL", "''", "'word'", "'naïve ☺'", "E'tab\\t\"quote\"'"))

    def _number(self) -> str:
        return self.chance.choice(("NULL", "0", "-5", str(self.chance.randrange(10**6))))

    def _of(self, table: str, insert: str, update: str, delete: str, move: str) -> str:
        """One of these, with `{key}` and `{new}` filled in."""
        old, draw = self._key(table), self.chance.random()
        if old is None or draw < 0.35:
            return insert.format(new=self._new(table))
        if draw < 0.7:
            return update.format(key=old)
        if draw < 0.85:
            return delete.format(key=self._gone(table, old))
        return move.format(key=old, new=self._moved(table, old))

    def _plain(self) -> str:
        return self._of(
            "h_plain",
            f"INSERT INTO h_plain (id, {self.text}, b, d) VALUES ({{new}}, {self._word()},"
            f" {self._number()}, '2026-11-21 0{self.chance.randrange(10)}:00:00.25+02')",
            f"UPDATE h_plain SET {self.text} = {self._word()}, b = {self._number()}"
            " WHERE id = {key}",
            "DELETE FROM h_plain WHERE id = {key}",
            "UPDATE h_plain SET id = {new} WHERE id = {key}",
        )

    def _full(self) -> str:
        return self._of(
            "h_full",
            f"INSERT INTO h_full (id, a, c) VALUES ({{new}}, {self._word()}, {self._number()})",
            f"UPDATE h_full SET a = {self._word()}, c = {self._number()} WHERE id = {{key}}",
            "DELETE FROM h_full WHERE id = {key}",
            "UPDATE h_full SET id = {new}, a = 'moved' WHERE id = {key}",
        )

    def _pair(self) -> str:
        return self._of(
            "h_pair",
            """INSERT INTO h_pair (a, b, v) VALUES ({new}, 'k', '{{"n": {new}}}')""",
            "UPDATE h_pair SET v = '[]' WHERE a = {key}",
            "DELETE FROM h_pair WHERE a = {key}",
            "UPDATE h_pair SET a = {new}, b = 'moved' WHERE a = {key}",
        )

    def _nokey(self) -> str:
        return self._of(
            "h_nokey",
            f"INSERT INTO h_nokey VALUES ({{new}}, {self._word()})",
            f"UPDATE h_nokey SET b = {self._word()} WHERE a = {{key}}",
            "DELETE FROM h_nokey WHERE a = {key}",
            "UPDATE h_nokey SET a = {new} WHERE a = {key}",
        )

    def _index(self) -> str:
        return self._of(
            "h_index",
            f"INSERT INTO h_index VALUES ({self._word()}, {{new}}, {self._number()})",
            f"UPDATE h_index SET v = {self._word()} WHERE u = {{key}}",
            "DELETE FROM h_index WHERE u = {key}",
            "UPDATE h_index SET u = {new} WHERE u = {key}",
        )

    def _part(self) -> str:
        return self._of(
            "h_part",
            f"INSERT INTO h_part VALUES ({{new}}, {self._word()})",
            f"UPDATE h_part SET v = {self._word()} WHERE id = {{key}}",
            "DELETE FROM h_part WHERE id = {key}",
            "UPDATE h_part SET id = {new} WHERE id = {key}",
        )

    def _toast(self) -> str:
        return self._of(
            "h_toast",
            "INSERT INTO h_toast VALUES ({new}, repeat('long ', 1000), decode(repeat('00ff',"
            " 3000), 'hex'), to_jsonb(repeat('j', 5000)), 1, array_fill('w'::text, '{{700}}'),"
            " array_fill(1, '{{700}}'), array_fill(1::int8, '{{700}}'), 10::numeric ^ 9000,"
            " array_fill('2026-01-01'::date, '{{700}}'), hw.hstore('k', repeat('v', 5000)))",
            "UPDATE h_toast SET n = n + 1 WHERE id = {key}",
            "DELETE FROM h_toast WHERE id = {key}",
            "UPDATE h_toast SET id = {new} WHERE id = {key}",
        )

    def _made(self) -> str:
        return self._of(
            "h_made",
            "INSERT INTO h_made (id, a) VALUES ({new}, {new})",
            "UPDATE h_made SET a = a + 1 WHERE id = {key}",
            "DELETE FROM h_made WHERE id = {key}",
            "UPDATE h_made SET id = {new} WHERE id = {key}",
        )

    def _weird(self) -> str:
        return self._of(
            "weird",
            f"INSERT INTO {WEIRD} VALUES ({{new}}, {self._word()})",
            f'UPDATE {WEIRD} SET "b ""q"" c" = {self._word()} WHERE "Cölumn 1" = {{key}}',
            f'DELETE FROM {WEIRD} WHERE "Cölumn 1" = {{key}}',
            f'UPDATE {WEIRD} SET "Cölumn 1" = {{new}} WHERE "Cölumn 1" = {{key}}',
        )

    def _other(self) -> str:
        draw = self.chance.random()
        if draw < 0.3:
            return "SELECT pg_logical_emit_message(true, 'inside', 'content ☺')"
        if draw < 0.4:
            self.keys["h_made"], self.keys["h_nokey"] = [], []
            return "TRUNCATE h_made, h_nokey"
        if draw < 0.7 and self.has_late:
            return f"INSERT INTO h_late VALUES ({self._new('h_late')}, 1e300)"
        return "SELECT 1"
