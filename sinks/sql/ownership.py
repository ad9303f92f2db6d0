"""The owner mark in a table's comment, and the copy of a rebuild: they need no SQLAlchemy."""

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from headwater.core_log.model.table_schema import TableId, TableSchema

MARK = re.compile(
    r"headwater:(?P<pipeline>[\w.-]+):(?P<sink>[\w.-]+):(?P<generation>\d+):(?P<origin>[0-9a-f]+)"
    r"(:(?P<recipe>[0-9a-f]+))?"
)


class OwnershipMark(NamedTuple):
    """The owner mark in a table's comment.

    It moves with the table when it is renamed, so one rename swaps rows and offsets.
    """

    pipeline: str
    sink: str
    generation: int
    """Incremented by every rebuild; stored offsets name it."""
    origin: str
    """Identifies the source table without its name."""
    recipe: str = ""
    """The recipe of a copy, if the table was made as one."""

    def __str__(self) -> str:
        ending = f":{self.recipe}" if self.recipe else ""
        return f"headwater:{self.pipeline}:{self.sink}:{self.generation}:{self.origin}{ending}"


def read_mark(text: str | None) -> OwnershipMark | None:
    """Returns the mark in a table's comment; None if there is none."""
    found = MARK.search(text or "")
    if found is None:
        return None
    generation, recipe = int(found["generation"]), found["recipe"] or ""
    return OwnershipMark(found["pipeline"], found["sink"], generation, found["origin"], recipe)


def origin_of(table: TableId) -> str:
    return sha256(f"{table.namespace}\0{table.name}".encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class SqlShadow:
    """The copy of a table in a rebuild, and its generation."""

    table: TableId
    generation: int
    newest: TableSchema | None = None
    """The schema whose types its columns get; None: the first one."""
    recipe: str = ""
    """The digest of the copy's recipe."""
