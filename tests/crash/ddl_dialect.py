"""Random DDL of one database: its statements, and the questions about its tables."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from tests.crash.captured_server import CapturedServer

Change = Callable[[Random, Any], Sequence[str]]
"""Statements that belong together, each committed by itself; they fit the table's shape."""


class Shape(Protocol):
    """What the catalogue says of a table."""

    @property
    def free(self) -> list[str]:
        """Columns that may be changed."""
        ...


class DdlDialect(Protocol):
    @property
    def server(self) -> CapturedServer: ...

    @property
    def tables(self) -> Sequence[str]:
        """The table `plain` is audited by triggers."""
        ...

    @property
    def changes(self) -> Mapping[str, Sequence[Change]]:
        """By table."""
        ...

    @property
    def in_place(self) -> Sequence[Change]:
        """After these no rows have to be read again."""
        ...

    def unlog(self, random: Random, shape: Any) -> Sequence[str]:
        """Changes of rows that nobody streams."""
        ...

    def made(self) -> Sequence[str]:
        """Statements that make the tables, with their first rows and triggers."""
        ...

    def publish(self, database: str, pipeline: str) -> None:
        """Allows the pipeline to stream changes behind `unlog`."""
        ...

    def shape_of(self, connection: Any, table: str, *, keeps_types: bool) -> Shape:
        """`keeps_types`: a name of a column never stands for another type."""
        ...

    def change_of_rows(self, random: Random, shape: Any) -> str: ...

    def is_alone(self, statements: str) -> bool:
        """Whether the server allows no transaction around them, or nobody needs one."""
        ...

    def execute(self, connection: Any, statements: str) -> None:
        """In one transaction if there are several."""
        ...

    def is_locked(self, error: Exception) -> bool: ...
    def is_refused(self, error: Exception) -> bool: ...

    def columns_of(self, database: str, table: str) -> dict[str, str]:
        """Name to type."""
        ...

    def key_of(self, database: str, table: str) -> list[str]: ...

    def audit_of(self, database: str, table: str, since: int) -> list[tuple[str, str, int, int]]:
        """Moment, letter, id and version of each change behind a number. What is of one moment is
        one version of a history; the letter of a truncate is `t`."""
        ...
