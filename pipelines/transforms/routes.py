"""Table routes: under which name a table arrives at the target, and several as one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.foundation.name_patterns import Pattern
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema
from headwater.pipelines.file.spec import RouteRule

REFERENCE = re.compile(r"\$(\$|\d+)")


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """Where a table goes."""

    table: TableId
    key: Mapping[str, str]
    """Columns that every row gets, in front of its key."""


class Routes:
    """The first route that matches counts; a table that none matches keeps its name.

    A truncate of a table that shares its target empties its own share only: its row then holds the
    added columns, see `TableChanges.truncated_where`.
    """

    def __init__(self, rules: Sequence[RouteRule]) -> None:
        self._rules = [(Pattern(rule.source), rule) for rule in rules]
        for pattern, rule in self._rules:
            for template in (rule.to, *rule.add_key.values()):
                _check_references(template, pattern, rule)
        self._shares: dict[tuple[TableId, tuple[str, ...]], TableId] = {}

    def target(self, table: TableId) -> RoutedTable:
        for pattern, rule in self._rules:
            groups = pattern.groups(str(table))
            if groups is not None:
                namespace, dot, name = rule.to.partition(".")
                if not dot:
                    namespace, name = "", rule.to
                return RoutedTable(
                    TableId(_fill(namespace, groups), _fill(name, groups)),
                    {column: _fill(text, groups) for column, text in rule.add_key.items()},
                )
        return RoutedTable(table, {})

    def schema(self, schema: TableSchema) -> TableSchema:
        """The table as the target sees it; raises ConfigError where its rows would be taken for
        those of another table."""
        target = self._claim(schema.table)
        if taken := set(target.key) & set(schema.names):
            raise ConfigError(
                "the table already has the column that the route adds",
                hint="give the column under add_key another name",
                table=str(schema.table),
                column=min(taken),
            )
        added = tuple(Column(name, pa.string(), is_nullable=False) for name in target.key)
        return replace(
            schema,
            table=target.table,
            columns=added + schema.columns,
            key=(*target.key, *schema.key) if schema.key else (),
        )

    def apply(self, changes: TableChanges, schema: TableSchema) -> TableChanges:
        """`schema` is what this class makes of that of the changes."""
        if schema is changes.schema:
            return changes
        key = self.target(changes.schema.table).key
        added = [pa.repeat(pa.scalar(value, pa.string()), len(changes)) for value in key.values()]
        rows = pa.RecordBatch.from_arrays([*added, *changes.rows.columns], schema=schema.arrow)
        before = changes.before
        if before is not None and added:
            inner = [before.field(place) for place in range(before.type.num_fields)]
            fields = [*(pa.field(name, pa.string()) for name in key), *before.type]
            before = pa.StructArray.from_arrays(
                [*added, *inner], fields=fields, mask=before.is_null()
            )
        return replace(changes, schema=schema, rows=rows, before=before)

    def _claim(self, table: TableId) -> RoutedTable:
        target = self.target(table)
        share = (target.table, tuple(target.key.values()))
        owner = self._shares.setdefault(share, table)
        if owner != table:
            raise ConfigError(
                "two tables become one without a column that distinguishes their rows",
                hint='add such a column, for example add_key: {tenant_id: "$1"}',
                table=str(table),
                target=str(target.table),
                tables=sorted((str(owner), str(table))),
            )
        return target


def _fill(template: str, groups: Sequence[str]) -> str:
    return REFERENCE.sub(
        lambda found: "$" if found[1] == "$" else groups[int(found[1]) - 1], template
    )


def _check_references(template: str, pattern: Pattern, rule: RouteRule) -> None:
    for number in REFERENCE.findall(template):
        if number != "$" and not 1 <= int(number) <= pattern.group_count:
            raise ConfigError(
                "the route names a group that its pattern does not have",
                hint="$1 is the first group of a /regex/, or what the first * of a glob matches",
                route=rule.source,
                named=f"${number}",
                groups=pattern.group_count,
            )
