"""Statements by chance, as they fit what a table is at that moment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import psycopg

KEYS = 200
"""Rows have the numbers from 0 up to here."""
BOUNDS = (0, 50, 100, 150, KEYS)
"""Of partitions."""
SPARED = ("id", "v", "k")
"""Columns that keep their names and types: the key, and a number that no other write has."""
FIRST_COLUMNS = ("a text", "b int", "n numeric(12,2) DEFAULT 1", "m mood")
"""Those that each table begins with, beside the spared ones."""
TYPES = (
    "smallint", "integer", "bigint", "text", "character varying(40)", "numeric(12,2)", "boolean",
    "date", "integer[]", "mood", "bytea", "uuid", "jsonb", "timestamp with time zone",
    "time without time zone", "double precision", "numeric", "text[]",
)  # fmt: skip

COLUMNS = """
SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum
"""
PARTS = """
SELECT c.relname::text, inhrelid IS NOT NULL,
    coalesce(substring(pg_get_expr(relpartbound, c.oid) FROM $$FROM \\((\\d+)\\)$$)::int, -1)
FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
WHERE c.relkind = 'r' AND c.relname ~ ('^' || %s || '_p\\d+$') ORDER BY 1
"""
LABELS = "SELECT enumlabel::text FROM pg_enum WHERE enumtypid = 'mood'::regtype"


@dataclass(frozen=True, slots=True)
class Shape:
    """What the catalogue says of a table."""

    name: str
    columns: dict[str, str]
    """Name to type."""
    labels: Sequence[str]
    parts: Sequence[tuple[str, bool, int]]
    """Partitions, and those that were: whether it is one, and its lower bound."""
    keeps_types: bool
    """Whether a name never stands for another type: a target that keeps a history holds its table
    then, as it cannot be made anew."""

    @classmethod
    def of(cls, connection: psycopg.Connection, name: str, *, keeps_types: bool) -> "Shape":
        columns: dict[str, str] = dict(connection.execute(COLUMNS, [name]).fetchall())
        labels = [label for (label,) in connection.execute(LABELS).fetchall()]
        parts = connection.execute(PARTS, [name]).fetchall()
        return cls(name, columns, labels, parts, keeps_types)

    @property
    def free(self) -> list[str]:
        return [name for name in self.columns if name not in SPARED]


def literal(random: Random, kind: str, labels: Sequence[str]) -> str:
    """A value of that type."""
    number = random.randrange(30_000)
    if random.random() < 0.15:
        return "NULL"
    return {
        "text": f"'t{number}'",
        "numeric(12,2)": f"{number / 100}",
        "boolean": str(number % 2 == 0),
        "date": f"'2024-01-01'::date + {number % 1000}",
        "integer[]": f"'{{{number},{number % 7}}}'",
        "mood": f"'{random.choice(labels)}'",
        "bytea": f"'\\x{number:04x}00'",
        "uuid": f"'00000000-0000-4000-8000-{number:012x}'",
        "jsonb": f"""'{{"a": [{number}, null]}}'""",
        "timestamp with time zone": f"'2024-01-01Z'::timestamptz + {number} * interval '1 s'",
        "time without time zone": f"'00:00'::time + {number} * interval '1.5 s'",
        "double precision": random.choice((f"{number / 7}", "-0.0")),
        "numeric": random.choice((f"{number / 7}", f"{number}e20", "'NaN'")),
        "text[]": f"""'{{t{number},NULL,"b c"}}'""",
    }.get(kind, f"'{number}'")


def converted(column: str, kind: str, labels: Sequence[str]) -> str:
    """From whatever type it has."""
    length = f"length({column}::text)"
    return {
        "text": f"'x' || {column}::text",
        "character varying(40)": f"right({column}::text, 30)",
        "numeric(12,2)": f"{length} / 7.0",
        "boolean": f"{length} % 2 = 0",
        "date": f"'2020-01-01'::date + {length}",
        "integer[]": f"ARRAY[{length}]",
        "mood": f"'{labels[0]}'::mood",
        "bytea": f"decode(md5({column}::text), 'hex')",
        "uuid": f"md5({column}::text)::uuid",
        "jsonb": f"jsonb_build_object('a', {column}::text)",
        "timestamp with time zone": f"'2020-01-01Z'::timestamptz + {length} * interval '1 h'",
        "time without time zone": f"'01:00'::time + {length} * interval '1 s'",
        "double precision": f"{length} / 7.0::float8",
        "numeric": f"{length} / 3.0",
        "text[]": f"ARRAY[{column}::text, NULL]",
    }.get(kind, length)


def change_of_rows(random: Random, shape: Shape) -> str:
    """One statement: rows come, change, get other keys, or go."""
    id, kind = random.randrange(KEYS), random.random()
    name = shape.name
    if kind < 0.2:
        return f"DELETE FROM {name} WHERE id BETWEEN {id} AND {id + random.randrange(3)}"
    if kind < 0.3:
        moved = f"UPDATE {name} SET id = {random.randrange(KEYS)}, v = nextval('versions')"
        return f"{moved} WHERE id = {id}"
    chosen = [each for each in shape.free if random.random() < 0.6]
    chosen += ["k"] if "k" in shape.columns and random.random() < 0.3 else []
    if kind < 0.6:
        values = "".join(f", {each} = {_value(random, shape, each)}" for each in chosen)
        where = f"id BETWEEN {id} AND {id + random.choice((0, 0, 5))}"
        return f"UPDATE {name} SET v = nextval('versions'){values} WHERE {where}"
    names = "".join(f", {each}" for each in chosen)
    values = "".join(f", {_value(random, shape, each)}" for each in chosen)
    return (
        f"INSERT INTO {name} (id, v{names}) VALUES ({id}, nextval('versions'){values})"
        " ON CONFLICT DO NOTHING"
    )


def _value(random: Random, shape: Shape, column: str) -> str:
    if column == "k":
        return f"'{random.randrange(1, 4)}'"
    return literal(random, shape.columns[column], shape.labels)


Change = Callable[[Random, Shape], Sequence[str]]
"""Statements that belong together, each committed by itself."""


def add(random: Random, shape: Shape) -> Sequence[str]:
    kind = random.choice(TYPES)
    value = literal(random, kind, shape.labels)
    volatile = converted("random()", kind, shape.labels)
    extra = random.choice(["", "", f" DEFAULT {value}", f" DEFAULT {volatile}"])
    return [f"ALTER TABLE {shape.name} ADD {_new(random, shape, kind)} {kind}{extra}"]


def add_constant(random: Random, shape: Shape) -> Sequence[str]:
    kind = random.choice(TYPES)
    value = literal(random, kind, shape.labels)
    return [f"ALTER TABLE {shape.name} ADD {_new(random, shape, kind)} {kind} DEFAULT {value}"]


def drop(random: Random, shape: Shape) -> Sequence[str]:
    return [f"ALTER TABLE {shape.name} DROP {random.choice(shape.free)}"]


def drop_and_add(random: Random, shape: Shape) -> Sequence[str]:
    column = random.choice(shape.free)
    kind = shape.columns[column]
    kind = kind if shape.keeps_types else random.choice([kind, random.choice(TYPES)])
    parts = (f"DROP {column}", f"ADD {column} {kind}")
    return random.choice(
        [
            [f"ALTER TABLE {shape.name} {part}" for part in parts],
            ["; ".join(f"ALTER TABLE {shape.name} {part}" for part in parts)],
        ]
    )


def rename(random: Random, shape: Shape) -> Sequence[str]:
    column = random.choice(shape.free)
    new = _new(random, shape, shape.columns[column])
    return [f"ALTER TABLE {shape.name} RENAME {column} TO {new}"]


def rename_there_and_back(random: Random, shape: Shape) -> Sequence[str]:
    column = random.choice(shape.free)
    other = _new(random, shape, shape.columns[column])
    return [
        f"ALTER TABLE {shape.name} RENAME {column} TO {other}",
        f"ALTER TABLE {shape.name} RENAME {other} TO {column}",
    ]


def exchange_names(random: Random, shape: Shape) -> Sequence[str]:
    one, other = random.sample(shape.free, 2)
    if shape.keeps_types and shape.columns[one] != shape.columns[other]:
        return []
    renamed = [(one, "between"), (other, one), ("between", other)]
    return ["; ".join(f"ALTER TABLE {shape.name} RENAME {old} TO {new}" for old, new in renamed)]


def convert(random: Random, shape: Shape) -> Sequence[str]:
    """To any type, be it the same with other values."""
    column = random.choice(shape.free)
    kind = shape.columns[column] if shape.keeps_types else random.choice(TYPES)
    using = converted(column, kind, shape.labels)
    return [
        f"ALTER TABLE {shape.name} ALTER {column} DROP DEFAULT,"
        f" ALTER {column} TYPE {kind} USING {using}"
    ]


def widen(random: Random, shape: Shape) -> Sequence[str]:
    """As far as the server casts by itself."""
    column = random.choice(shape.free)
    if shape.keeps_types:
        return []
    wider = {
        "smallint": "integer", "integer": "bigint", "bigint": "numeric(12,2)",
        "character varying(40)": "text", "text": "character varying", "mood": "text",
        "numeric(12,2)": "numeric(14,2)",
    }  # fmt: skip
    kind = wider.get(shape.columns[column], "text")
    return [f"ALTER TABLE {shape.name} ALTER {column} DROP DEFAULT, ALTER {column} TYPE {kind}"]


def label(random: Random, shape: Shape) -> Sequence[str]:
    new = f"l{random.randrange(10**6)}"
    added = f"ALTER TYPE mood ADD VALUE '{new}'"
    renamed = f"ALTER TYPE mood RENAME VALUE '{random.choice(shape.labels)}' TO '{new}'"
    moods = [name for name in shape.free if shape.columns[name] == "mood"]
    if not moods:
        return [random.choice([added, renamed])]
    used = f"UPDATE {shape.name} SET v = nextval('versions'), {moods[0]} = '{new}' WHERE id % 7 = 2"
    again = f"ALTER TYPE mood RENAME VALUE '{new}' TO '{new}b'"
    return random.choice([[added], [renamed], [added, used, again], [added, used, again, added]])


def identity(random: Random, shape: Shape) -> Sequence[str]:
    return [f"ALTER TABLE {shape.name} REPLICA IDENTITY {random.choice(('FULL', 'DEFAULT'))}"]


def truncate(random: Random, shape: Shape) -> Sequence[str]:
    return [f"TRUNCATE {shape.name}"]


def vacuum(random: Random, shape: Shape) -> Sequence[str]:
    return [f"VACUUM FULL {shape.name}"]


def unlog(random: Random, shape: Shape) -> Sequence[str]:
    """With rows that nobody streams."""
    return [
        f"ALTER TABLE {shape.name} SET UNLOGGED",
        f"UPDATE {shape.name} SET v = nextval('versions') WHERE id % 9 = 3",
        f"ALTER TABLE {shape.name} SET LOGGED",
    ]


def change_key(random: Random, shape: Shape) -> Sequence[str]:
    """Rows that one key tells apart may be one by the next."""
    if shape.keeps_types:
        return []
    key, name = random.choice(("id", "id, k", "k, id")), shape.name
    return [
        f"DELETE FROM {name} a USING {name} b WHERE a.id = b.id AND a.k > b.k"
        if key == "id"
        else f"UPDATE {name} SET v = nextval('versions') WHERE id = 1",
        f"ALTER TABLE {name} DROP CONSTRAINT {name}_pkey, ADD PRIMARY KEY ({key})",
    ]


def change_key_type(random: Random, shape: Shape) -> Sequence[str]:
    if shape.keeps_types:
        return []
    kind = random.choice(("int", "bigint", "text"))
    return [
        f"ALTER TABLE {shape.name} ALTER k DROP DEFAULT, ALTER k TYPE {kind} USING k::{kind},"
        " ALTER k SET DEFAULT 1"
    ]


def make_anew(random: Random, shape: Shape) -> Sequence[str]:
    """Another table of the same name; for a moment there may be none."""
    key, extra, name = "id", list[str](), shape.name
    if not shape.keeps_types:
        key = random.choice(("id", "id", "id, k", "k, id"))
        kind = random.choice(TYPES)
        extra = [f"{_new(random, shape, kind)} {kind}"]
    kept = [each for each in FIRST_COLUMNS if random.random() < 0.8]
    columns = ", ".join(["id int", "v bigint", "k int NOT NULL DEFAULT 1", *kept, *extra])
    statements = [
        f"DROP TABLE {name}",
        f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}))",
        f"INSERT INTO {name} (id, v) SELECT i, nextval('versions')"
        f" FROM generate_series(0, {KEYS - 1}, {random.randrange(2, 9)}) i",
        *triggers_of(name),
    ]
    return random.choice([statements, ["; ".join(statements)]])


def triggers_of(name: str) -> list[str]:
    return [
        f"CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON {name}"
        f" FOR EACH ROW EXECUTE FUNCTION keep('{name}')",
        f"CREATE TRIGGER truncates AFTER TRUNCATE ON {name}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION keep('{name}')",
    ]


def attach(random: Random, shape: Shape) -> Sequence[str]:
    """One that was detached, or a new one with rows."""
    held = {lower for _, is_part, lower in shape.parts if is_part}
    missing = [(lower, upper) for lower, upper in pairwise(BOUNDS) if lower not in held]
    if not missing:
        return []
    lower, upper = random.choice(missing)
    if (old := f"{shape.name}_p{lower}") in [name for name, *_ in shape.parts]:
        bounds = f"FOR VALUES FROM ({lower}) TO ({upper})"
        return [
            f"UPDATE {old} SET v = nextval('versions') WHERE id % 5 = 1",
            f"ALTER TABLE {shape.name} ATTACH PARTITION {old} {bounds}",
        ]
    bounds = f"FOR VALUES FROM ({lower}) TO ({upper})"
    rows = (
        f"INSERT INTO {old} (id, v) SELECT i, nextval('versions')"
        f" FROM generate_series({lower}, {lower + 20}) i"
    )
    return random.choice(
        [
            [f"CREATE TABLE {old} PARTITION OF {shape.name} {bounds}", rows],
            [
                f"CREATE TABLE {old} (LIKE {shape.name} INCLUDING ALL)",
                rows,
                f"ALTER TABLE {shape.name} ATTACH PARTITION {old} {bounds}",
            ],
        ]
    )


def detach(random: Random, shape: Shape) -> Sequence[str]:
    if (part := _part(random, shape)) is None:
        return []
    how = random.choice(("", " CONCURRENTLY"))
    return [f"ALTER TABLE {shape.name} DETACH PARTITION {part}{how}"]


def drop_part(random: Random, shape: Shape) -> Sequence[str]:
    return [] if (part := _part(random, shape)) is None else [f"DROP TABLE {part}"]


def truncate_part(random: Random, shape: Shape) -> Sequence[str]:
    return [] if (part := _part(random, shape)) is None else [f"TRUNCATE {part}"]


def vacuum_part(random: Random, shape: Shape) -> Sequence[str]:
    return [] if (part := _part(random, shape)) is None else [f"VACUUM FULL {part}"]


def _part(random: Random, shape: Shape) -> str | None:
    """Never the last one."""
    held = [name for name, is_part, _ in shape.parts if is_part]
    return random.choice(held) if len(held) > 1 else None


def _new(random: Random, shape: Shape, kind: str) -> str:
    number = random.randrange(30)
    return f"c{number}_{TYPES.index(kind)}" if shape.keeps_types else f"c{number}"


COMMON: tuple[Change, ...] = (
    add, add, drop, drop_and_add, rename, rename_there_and_back, exchange_names, convert, widen,
    label, identity, truncate, vacuum,
)  # fmt: skip
IN_PLACE: tuple[Change, ...] = (
    add_constant, add_constant, rename, rename, rename_there_and_back, exchange_names, drop,
    identity, truncate, vacuum,
)  # fmt: skip
"""After these the rows of a table need not be read again, unless several come together."""
CHANGES: dict[str, Sequence[Change]] = {
    "plain": COMMON,
    "parts": (*COMMON, attach, attach, attach, detach, drop_part, truncate_part, vacuum_part),
    "keyed": (*COMMON, change_key, change_key, change_key, change_key_type, make_anew),
}
"""By table."""
