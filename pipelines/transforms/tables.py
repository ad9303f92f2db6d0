"""Which tables a rule of the pipeline file means, and how sure it is of their columns."""

import re
from collections.abc import Collection, Iterable

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.pipelines.file.spec import TransformRule

WILD = re.compile(r"[*?/!\\]")


class RuleTables:
    """The tables of one rule."""

    def __init__(self, rule: TransformRule) -> None:
        self._patterns = Patterns(rule.table)
        self._is_exact = not any(WILD.search(text) for text in rule.table)

    def match(self, table: TableId) -> bool:
        return self._patterns.matches(str(table))

    def present(self, wanted: Iterable[str], schema: TableSchema, *, use: str) -> list[str]:
        """Those of the wanted columns that the table has. A rule that names its table has to name
        its columns right, since a mistyped mask would hide nothing; one for many tables applies
        wherever there is such a column."""
        names = set(schema.names)
        wanted = list(wanted)
        if self._is_exact and (missing := [name for name in wanted if name not in names]):
            raise no_column(missing[0], schema, use=use)
        return [name for name in wanted if name in names]


def no_column(name: str, schema: TableSchema, *, use: str) -> ConfigError:
    return ConfigError(
        "the table has no such column",
        hint=near(name, schema.names) or f"it has {', '.join(schema.names)}",
        table=str(schema.table),
        column=name,
        use=use,
    )


def near(name: str, known: Collection[str], *, likeness: float = 0.6) -> str:
    """A guess at what was meant, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(name, known, n=1, cutoff=likeness)
    return f"did you mean {found[0]}?" if found else ""
