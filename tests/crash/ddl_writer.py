"""Tables whose rows and forms change by chance, with triggers that write down every change."""

import time
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.background_writer import BackgroundWriter
from tests.crash.ddl_dialect import DdlDialect, Shape
from tests.crash.ddl_statements import KEYS

TRIES = 20
"""Of a statement that waits for a lock."""
PAUSE_S = 0.01


class DdlWriter:
    """One step after the other; what it has done stands in a file."""

    def __init__(
        self,
        dialect: DdlDialect,
        database: str,
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
        self._dialect, self._database, self._random = dialect, database, Random(seed)
        self._output, self._may_unlog, self._share = output, may_unlog, share
        self.statements = 0
        """That the server has run."""

    def work(self, background: BackgroundWriter) -> None:
        """Counts steps."""
        with self._dialect.server.connect(self._database) as connection:
            while not background.is_ending.is_set():
                self._step(connection, background)
                background.add(1)
                background.is_ending.wait(PAUSE_S * self._random.choice((0, 1, 1, 5)))
            for name in self._dialect.tables:
                self._add_last_row(connection, name)

    def _step(self, connection: Any, background: BackgroundWriter) -> None:
        """Changes of rows in one transaction; or of forms, one or several without any of rows
        between them, in one transaction or not."""
        name = self._random.choice(list(self._dialect.tables))
        if self._random.random() >= self._share:
            statements = [
                self._dialect.change_of_rows(self._random, self._shape(connection, name))
                for _ in range(self._random.choice((1, 1, 2, 5)))
            ]
            self._execute(connection, background, "; ".join(statements))
            return
        for _ in range(self._random.choice((1, 1, 2, 3))):
            shape = self._shape(connection, name)
            unlogged = [self._dialect.unlog] if self._may_unlog else []
            choices = [*self._dialect.changes[name], *unlogged]
            choices = [*self._dialect.in_place] if self._is_in_place else choices
            if len(shape.free) < 3:
                choices = [choices[0]]
            statements = list(self._random.choice(choices)(self._random, shape))
            if self._random.random() < 0.2 and not self._dialect.is_alone("".join(statements)):
                statements.append(self._dialect.change_of_rows(self._random, shape))
                statements = ["; ".join(statements)]
            for statement in statements:
                self._execute(connection, background, statement)

    def _shape(self, connection: Any, name: str) -> Shape:
        return self._dialect.shape_of(connection, name, keeps_types=self._keeps_types)

    def _execute(self, connection: Any, background: BackgroundWriter, statement: str) -> None:
        """What the server refuses is no part of the history."""
        for _ in range(TRIES):
            try:
                self._dialect.execute(connection, statement)
                self.statements += 1
                self._note(statement)
                return
            except Exception as error:
                if self._dialect.is_locked(error):
                    if background.is_ending.wait(PAUSE_S):
                        return
                elif self._dialect.is_refused(error):
                    self._note(f"REFUSED {statement} -- {str(error).splitlines()[0]}")
                    return
                else:
                    raise

    def _add_last_row(self, connection: Any, name: str) -> None:
        """A table of a target that has this row has everything: a former state of the source may
        be equal to the last one."""
        version = self._random.getrandbits(50)
        for id in range(KEYS):
            statement = f"INSERT INTO {name} (id, v) VALUES ({id}, {version})"
            try:
                self._dialect.execute(connection, statement)
            except Exception as error:
                if not self._dialect.is_refused(error):
                    raise
            else:
                self._note(statement)
                return

    def _note(self, statement: str) -> None:
        with self._output.open("a") as output:
            output.write(f"{time.strftime('%H:%M:%S')} {statement}\n")
