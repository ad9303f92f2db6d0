"""What targets hold of tables whose forms have changed, beside the source and an audit."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.crash.ddl_dialect import DdlDialect
from tests.sinks.spark.targets import LakeBench

INTEGERS = ("smallint", "integer", "bigint", "int")
LAKES = ("delta", "iceberg", "parquet")
ROWS, HISTORIES = ("mirror", "soft_delete"), ("append", "scd2")
"""Ways of keeping a table."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """One sink of the pipeline's."""

    kind: str
    """`sqlite`, `postgres`, `mariadb`, or a format of the lake."""
    mode: str
    address: str
    """Of a database, or a directory."""
    namespace: str = "public"
    """The first part of the names of the source's tables."""

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.mode}"

    @property
    def settings(self) -> dict[str, Any]:
        kept = {"tables": {"*": {"mode": self.mode}}}
        if self.kind in LAKES:
            lake = {"type": "spark", "path": self.address, "format": self.kind}
            return {"name": self.name, **lake, **({} if self.kind == "parquet" else kept)}
        table = f"{self.mode}_{{table}}"
        return {"name": self.name, "type": "sql", "url": self.address, "table": table, **kept}

    def rows(self, table: str) -> Rows:
        if self.kind in LAKES:
            chosen = {} if self.kind == "parquet" else {"format": self.kind}
            found = LakeBench(self.address, chosen=chosen).table(f"{self.namespace}.{table}")
            return [] if found is None else found.to_pylist()
        name = f"{self.mode}_{table}"
        if self.kind == "sqlite":
            return _in_sqlite(Path(self.address.removeprefix("sqlite:///")), name)
        engine = sa.create_engine(
            sa.make_url(self.address).set(
                drivername="postgresql+psycopg" if self.kind == "postgres" else "mariadb+pymysql"
            )
        )
        try:
            with engine.connect() as connection:
                if not sa.inspect(connection).has_table(name):
                    return []
                return [
                    dict(row._mapping)
                    for row in connection.execute(sa.text(f"SELECT * FROM {name}"))
                ]
        finally:
            engine.dispose()


def _in_sqlite(path: Path, name: str) -> Rows:
    with closing(sqlite3.connect(path, timeout=60)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [name]).fetchall():
            return []
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(f"SELECT * FROM {name}")]


class Truth:
    """The source as it is, and since some moment all that became of it."""

    def __init__(self, dialect: DdlDialect, database: str, *, is_whole: bool) -> None:
        """`is_whole`: whether the triggers saw every change of these tables' rows."""
        self._dialect, self._database, self._is_whole = dialect, database, is_whole
        self._since: int | None = None

    def begin(self) -> None:
        """From now on all of it is streamed."""
        self._since = self._ask("SELECT coalesce(max(number), 0) FROM audit")[0][0]

    def differences(self, target: Target) -> list[str]:
        found = list[str]()
        for table in self._dialect.tables:
            columns = self._dialect.columns_of(self._database, table)
            names = ", ".join(columns)
            there = _told(self._ask(f"SELECT {names} FROM {table}"), columns)
            rows = target.rows(table)
            current = _current(target.mode, rows, self._dialect.key_of(self._database, table))
            here = _told([[row.get(name) for name in columns] for row in current], columns)
            found += [f"{table} lacks {each}" for each in sorted((there - here).elements())]
            found += [f"{table} has {each}" for each in sorted((here - there).elements())]
            if table == "plain" and self._is_whole and self._since is not None:
                found += [f"{table}: {each}" for each in self._unlike_audit(target, table, rows)]
        return found

    def _unlike_audit(self, target: Target, table: str, rows: Rows) -> Iterable[str]:
        """Of a history: versions that it lacks, and such as it has twice."""
        assert self._since is not None, "it has begun"
        changes = self._dialect.audit_of(self._database, table, self._since)
        if target.mode == "append":
            had = [
                (row["_headwater_op"], row["id"], row["v"])
                for row in rows
                if row["_headwater_op"] in "cu"
            ]
            wanted = [(letter, id, v) for _, letter, id, v in changes if letter in "cu"]
            yield from (f"append lacks {each}" for each in sorted({*wanted} - {*had}))
            if len({*had}) != len(had):
                yield f"append has {len(had) - len({*had})} changes twice"
        if target.mode == "scd2":
            last = {(at, id): v for at, letter, id, v in changes if letter in "cu"}
            gone = {(at, id) for at, letter, id, _ in changes if letter == "d"}
            emptied = {at for at, letter, *_ in changes if letter == "t"}
            kept = {(row["id"], row["v"]) for row in rows}
            for (at, id), v in last.items():
                if (at, id) not in gone and at not in emptied and (id, v) not in kept:
                    yield f"scd2 lacks the version {(id, v)}"
            yield from _overlapping(rows)
        if target.mode == "soft_delete":
            ids = {row["id"] for row in rows}
            yield from (
                f"soft_delete lacks {id}"
                for _, letter, id, _ in changes
                if letter == "c" and id not in ids
            )

    def _ask(self, question: str, *values: Any) -> list[Any]:
        return self._dialect.server.execute(self._database, question, *values)


def _overlapping(rows: Rows) -> Iterable[str]:
    by_id: dict[Any, list[tuple[str, str]]] = {}
    for row in rows:
        until = row["_headwater_valid_to"]
        by_id.setdefault(row["id"], []).append(
            (str(row["_headwater_valid_from"]), "~" if until is None else str(until))
        )
    for id, spans in by_id.items():
        spans.sort()
        for (_, until), (since, _) in pairwise(spans):
            if since < until:
                yield f"scd2 has two versions of {id} at {since}"


def _current(mode: str, rows: Rows, key: Sequence[str]) -> Rows:
    if mode == "soft_delete":
        return [row for row in rows if row["_headwater_deleted_at"] is None]
    if mode == "scd2":
        return [row for row in rows if row["_headwater_valid_to"] is None]
    if mode == "append":
        return _folded(rows, key)
    return rows


def _folded(rows: Rows, key: Sequence[str]) -> Rows:
    """The newest change of each key in the newest topic."""
    found: dict[Any, dict[str, Any]] = {}
    newest = max((_generation(row) for row in rows), default=0)
    for row in sorted(rows, key=lambda row: row["_headwater_offset"]):
        if _generation(row) < newest:
            continue
        if row["_headwater_op"] == "t":
            found.clear()
        elif row["_headwater_op"] == "d":
            found.pop(_key_of(row, key), None)
        else:
            found[_key_of(row, key)] = row
    return list(found.values())


def _key_of(row: Mapping[str, Any], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in key)


def _generation(row: Mapping[str, Any]) -> int:
    _, is_later, number = row["_headwater_topic"].rpartition(".g")
    return int(number) if is_later and number.isdigit() else 1


def _told(rows: Iterable[Sequence[Any]], columns: Mapping[str, str]) -> Counter[str]:
    return Counter(
        ", ".join(
            f"{name} {_plain(value, kind)!r}"
            for value, (name, kind) in zip(row, columns.items(), strict=True)
        )
        for row in rows
    )


def _plain(value: Any, kind: str) -> Any:
    """As every target has it; what is of another type is left as it is."""
    if value is None:
        return None
    with suppress(ValueError, TypeError, AttributeError, ArithmeticError):
        return _of_kind(value, kind)
    return value


def _of_kind(value: Any, kind: str) -> Any:
    if kind.startswith(("numeric", "decimal")):
        return Decimal(str(value)).normalize()
    if kind.partition(" ")[0] in INTEGERS:  # a target may keep the decimals that it had
        number = Decimal(str(value))
        return int(number) if number == number.to_integral_value() else value
    if kind == "boolean":
        return value if isinstance(value, bool) else bool(int(value))
    if kind == "date":
        return None if _is_partial(str(value)) else str(value)[:10]
    if kind.startswith("datetime"):
        return None if _is_partial(str(value)) else _moment(value)
    if kind.endswith("[]"):
        return json.loads(value) if isinstance(value, str) else list(value)
    if (special := SPECIAL.get(kind.partition("(")[0])) is not None:
        return special(value)
    return value


def _is_partial(moment: str) -> bool:
    """Whether it is a zero date of MySQL, or one without a month or a day."""
    year, month, day = moment[:10].split("-")
    return year == "0000" or "00" in (month, day)


def _json(value: Any) -> str:
    return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)


def _moment(value: Any) -> str:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    is_naive = moment.tzinfo is None
    return (moment.replace(tzinfo=UTC) if is_naive else moment.astimezone(UTC)).isoformat()


def _time_of_day(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    found = time.fromisoformat(value) if isinstance(value, str) else value
    return datetime.combine(date.min, found) - datetime.min


SPECIAL: Mapping[str, Callable[[Any], Any]] = {
    "bytea": lambda value: bytes(value).hex(),
    "blob": lambda value: bytes(value).hex(),
    "uuid": str,
    "jsonb": _json,
    "timestamp with time zone": _moment,
    "time without time zone": _time_of_day,
    "double": lambda value: float(value) + 0.0,
    "double precision": lambda value: float(value) + 0.0,
}
