"""The mark on a table of ours: which pipeline keeps it, and which stored offsets count."""

import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from headwater.core_log.model.table_schema import TableId

if TYPE_CHECKING:
    pass


MARK = re.compile(
    r"headwater:(?P<pipeline>[\w.-]+):(?P<sink>[\w.-]+):(?P<generation>\d+):(?P<origin>[0-9a-f]+)"
    r"(:(?P<recipe>[0-9a-f]+))?"
)


class OwnershipMark(NamedTuple):
    """Travels with the table when it is renamed, so that one rename swaps rows and offsets."""

    pipeline: str
    sink: str
    generation: int
    """Raised by every rebuild; stored offsets name it."""
    origin: str
    """Tells which table of the source it is, without its name."""
    recipe: str = ""
    """By what it was made, if it was made as a copy."""

    def __str__(self) -> str:
        ending = f":{self.recipe}" if self.recipe else ""
        return f"headwater:{self.pipeline}:{self.sink}:{self.generation}:{self.origin}{ending}"


def read_mark(text: str | None) -> OwnershipMark | None:
    """The mark somewhere in a table's comment; None where there is none."""
    found = MARK.search(text or "")
    if found is None:
        return None
    generation, recipe = int(found["generation"]), found["recipe"] or ""
    return OwnershipMark(found["pipeline"], found["sink"], generation, found["origin"], recipe)


def origin_of(table: TableId) -> str:
    return sha256(f"{table.namespace}\0{table.name}".encode()).hexdigest()[:12]
