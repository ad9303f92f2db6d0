"""Tables whose rows and forms change by chance, with triggers that write down every change."""

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import psycopg

from tests.crash.ddl_statements import (
    BOUNDS,
    CHANGES,
    IN_PLACE,
    KEYS,
    Shape,
    change_of_rows,
    unlog,
)

TRIES = 20
"""Of a statement that waits for a lock."""
PAUSE_S = 0.01

AUDIT = (
    "CREATE TYPE mood AS ENUM ('sad', 'fine', 'great')",
    "CREATE SEQUENCE versions",
    "CREATE TABLE audit (number bigserial PRIMARY KEY, at xid DEFAULT pg_current_xact_id()::xid,"
    " of text, letter text NOT NULL, id int, v bigint)",
    "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " IF TG_OP = 'TRUNCATE' THEN INSERT INTO audit (of, letter) VALUES (TG_ARGV[0], 't');"
    " RETURN NULL; END IF;"
    " IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.id <> NEW.id) THEN"
    " INSERT INTO audit (of, letter, id, v) VALUES (TG_ARGV[0], 'd', OLD.id, OLD.v); END IF;"
    " IF TG_OP <> 'DELETE' THEN INSERT INTO audit (of, letter, id, v) VALUES (TG_ARGV[0],"
    " CASE WHEN TG_OP = 'INSERT' OR OLD.id <> NEW.id THEN 'c' ELSE 'u' END, NEW.id, NEW.v);"
    " END IF; RETURN NULL; END $$",
)
COLUMNS = "a text, b int, n numeric(12,2) DEFAULT 1, m mood"
TABLES = {
    "plain": [f"CREATE TABLE plain (id int PRIMARY KEY, v bigint, {COLUMNS})"],
    "keyed": [
        f"CREATE TABLE keyed (id int PRIMARY KEY, v bigint, k int NOT NULL DEFAULT 1, {COLUMNS})"
    ],
    "parts": [
        f"CREATE TABLE parts (id int PRIMARY KEY, v bigint, {COLUMNS}) PARTITION BY RANGE (id)",
        *(
            f"CREATE TABLE parts_p{lower} PARTITION OF parts FOR VALUES FROM ({lower}) TO ({upper})"
            for lower, upper in pairwise(BOUNDS)
        ),
    ],
}


def statements_of(tables: Sequence[str]) -> list[str]:
    """What makes them, with their first rows and triggers."""
    made = [*AUDIT]
    for name in tables:
        made += TABLES[name]
        made += [
            f"INSERT INTO {name} (id, v, a, b) SELECT i, nextval('versions'), 'a' || i, i"
            f" FROM generate_series(0, {KEYS - 1}) i WHERE i % 5 <> 0",
            f"CREATE TRIGGER rows AFTER INSERT OR UPDATE OR DELETE ON {name}"
            f" FOR EACH ROW EXECUTE FUNCTION keep('{name}')",
            f"CREATE TRIGGER truncates AFTER TRUNCATE ON {name}"
            f" FOR EACH STATEMENT EXECUTE FUNCTION keep('{name}')",
        ]
    return made


class DdlWriter:
    """One step after the other in a thread of its own; what it has done stands in a file."""

    def __init__(
        self,
        address: str,
        tables: Sequence[str],
        *,
        seed: int,
        output: Path,
        may_unlog: bool,
        keeps_types: bool,
        share: float,
        is_in_place: bool,
    ) -> None:
        """`share`: of steps that change a form. `is_in_place`: only by changes after which no rows
        are read again."""
        self._is_in_place = is_in_place
        self._keeps_types = keeps_types
        self._address, self._tables, self._random = address, tables, Random(seed)
        self._output, self._may_unlog, self._share = output, may_unlog, share
        self._is_ending = threading.Event()
        self._moved = threading.Condition()
        self._steps, self._has_ended = 0, False
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def wait_for_steps(self, steps: int) -> None:
        with self._moved:
            goal = self._steps + steps
            self._moved.wait_for(lambda: self._steps >= goal or self._has_ended)
        assert self._steps >= goal, "whoever writes goes on until it is stopped"

    def stop(self) -> None:
        self._is_ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            with psycopg.connect(self._address, autocommit=True) as connection:
                connection.execute("SET lock_timeout = '200ms'")
                while not self._is_ending.is_set():
                    self._step(connection)
                    with self._moved:
                        self._steps += 1
                        self._moved.notify_all()
                    self._is_ending.wait(PAUSE_S * self._random.choice((0, 1, 1, 5)))
        finally:
            with self._moved:
                self._has_ended = True
                self._moved.notify_all()

    def _step(self, connection: psycopg.Connection) -> None:
        """Changes of rows in one transaction; or of forms, one or several without any of rows
        between them, in one transaction or not."""
        name = self._random.choice(list(self._tables))
        if self._random.random() >= self._share:
            statements = [
                change_of_rows(self._random, self._shape(connection, name))
                for _ in range(self._random.choice((1, 1, 2, 5)))
            ]
            self._execute(connection, "; ".join(statements))
            return
        for _ in range(self._random.choice((1, 1, 2, 3))):
            shape = self._shape(connection, name)
            choices = [*CHANGES[name], *([unlog] if self._may_unlog else [])]
            choices = [*IN_PLACE] if self._is_in_place else choices
            if len(shape.free) < 3:
                choices = [choices[0]]
            statements = list(self._random.choice(choices)(self._random, shape))
            if self._random.random() < 0.2 and not _is_alone("".join(statements)):
                statements.append(change_of_rows(self._random, shape))
                statements = ["; ".join(statements)]
            for statement in statements:
                self._execute(connection, statement)

    def _shape(self, connection: psycopg.Connection, name: str) -> Shape:
        return Shape.of(connection, name, keeps_types=self._keeps_types)

    def _execute(self, connection: psycopg.Connection, statement: str) -> None:
        """What the server refuses is no part of the history."""
        for _ in range(TRIES):
            try:
                connection.execute(statement.encode())
                self._note(statement)
                return
            except psycopg.errors.LockNotAvailable:
                if self._is_ending.wait(PAUSE_S):
                    return
            except (
                psycopg.ProgrammingError,
                psycopg.DataError,
                psycopg.IntegrityError,
                psycopg.NotSupportedError,
                psycopg.errors.ObjectNotInPrerequisiteState,
                psycopg.errors.ObjectInUse,
            ) as error:
                self._note(f"REFUSED {statement} -- {str(error).splitlines()[0]}")
                return

    def _note(self, statement: str) -> None:
        with self._output.open("a") as output:
            output.write(f"{time.strftime('%H:%M:%S')} {statement}\n")


def _is_alone(statements: str) -> bool:
    """Whether the server allows no transaction around them, or nobody needs one."""
    return any(each in statements for each in ("VACUUM", "CONCURRENTLY", "ADD VALUE", "UNLOGGED"))
