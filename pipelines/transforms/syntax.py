"""The syntax of an SQL expression of a pipeline file: one value, computed from the row alone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import TableSchema
from headwater.pipelines.transforms.rows import near, no_column

if TYPE_CHECKING:
    import duckdb

KINDS = {
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT",
    "FUNCTION", "LAMBDA", "OPERATOR", "TYPE",
}  # fmt: skip
"""DuckDB's classes of expressions that need nothing but the row: no subquery, window or star."""
TELLING = {
    "SUBQUERY": "a subquery",
    "WINDOW": "a window function",
    "STAR": "a star",
    "PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a column by its place",
}
MACROS = {
    "date_add", "days_in_month", "fdiv", "fmod", "if", "json", "md5_number_lower",
    "md5_number_upper", "nullif", "round_even", "split_part",
}  # fmt: skip
"""Functions that DuckDB defines by others and says nothing about; and those over lists."""
UNSTEADY = {
    "age", "current_localtime", "current_localtimestamp", "json_deserialize_sql",
    "json_serialize_plan", "json_serialize_sql", "version",
}  # fmt: skip
"""Called consistent by DuckDB, but they depend on the clock, the program or the database."""
UNBOUNDED = {"array_resize", "generate_series", "list_resize", "range", "repeat"}
"""Make lists as long as a number says, of which DuckDB's limit of memory knows nothing."""


@dataclass(frozen=True, slots=True)
class Syntax:
    """An expression that may be used."""

    names: tuple[str, ...]
    """Columns, as it spells them."""

    def columns_of(self, schema: TableSchema) -> Iterator[str]:
        """The table's columns that are meant: SQL does not tell upper case from lower."""
        for name in self.names:
            if name in schema.names:
                yield name
                continue
            alike = [known for known in schema.names if known.lower() == name.lower()]
            if len(alike) != 1:
                raise no_column(name, schema, use="expression")
            yield alike[0]


def usable_functions(database: "duckdb.DuckDBPyConnection") -> frozenset[str]:
    """Those that answer by their arguments alone, so that a replay makes the same rows again."""
    listed = database.execute(
        "SELECT DISTINCT function_name, function_type, stability FROM duckdb_functions()"
    ).fetchall()
    # A name may be a table's as well, such as range: where a value stands, the scalar is meant.
    refused = {
        name
        for name, kind, stability in listed
        if kind in ("aggregate", "window") or (kind == "scalar" and stability != "CONSISTENT")
    }
    scalars = {name for name, kind, _ in listed if kind == "scalar"} - refused
    scalars -= UNSTEADY | UNBOUNDED
    macros = {
        name
        for name, kind, _ in listed
        if kind == "macro" and (name in MACROS or name.startswith(("list_", "array_")))
    }
    return frozenset({name for name in scalars if not name.startswith("__")} | macros)


def read_syntax(database: "duckdb.DuckDBPyConnection", text: str, usable: frozenset[str]) -> Syntax:
    """Raises ConfigError for everything that is not such an expression."""
    if not text.strip():
        raise _refused_error(text, "the text is empty")
    # On a line of its own, the bracket is not in the reach of a comment at the end.
    query = f"SELECT ({text}\n) FROM headwater"
    [said] = database.execute("SELECT json_serialize_sql(?::VARCHAR)", [query]).fetchall()[0]
    parsed = json.loads(said)
    if parsed["error"]:
        raise _refused_error(text, f"the text is not an SQL expression: {parsed['error_message']}")
    selected = _the_one_expression(parsed)
    if selected is None:
        raise _refused_error(text, "the text is more than one expression")
    return Syntax(tuple(dict.fromkeys(_names(selected, text, usable, frozenset()))))


def _the_one_expression(parsed: dict[str, Any]) -> object:
    """Returns the selected expression, if nothing but that and our own table is in the
    statement."""
    [statement, *more] = parsed["statements"]
    node = statement["node"]
    is_plain = (
        not more
        and node["type"] == "SELECT_NODE"
        and len(node["select_list"]) == 1
        and node["from_table"].get("table_name") == "headwater"
        and not node["cte_map"]["map"]
        and not any(
            node[part]
            for part in (
                "modifiers", "where_clause", "group_expressions", "having", "sample", "qualify",
            )
        )
    )  # fmt: skip
    return node["select_list"][0] if is_plain else None


def _names(node: object, text: str, usable: frozenset[str], bound: frozenset[str]) -> Iterator[str]:
    """The columns that an expression names; `bound` are parameters of lambdas around it."""
    if isinstance(node, list):
        for inner in node:
            yield from _names(inner, text, usable, bound)
        return
    if not isinstance(node, dict):
        return
    kind = node.get("class")
    if kind is not None and kind not in KINDS:
        raise _refused_error(text, f"the text has {TELLING.get(kind, f'a {kind.lower()}')}")
    if kind == "FUNCTION":
        _check_function(node["function_name"], text, usable)
    if kind == "COLUMN_REF":
        if node["column_names"][0] not in bound:
            yield node["column_names"][0]
        return
    if kind == "LAMBDA":
        bound |= {ref["column_names"][0] for ref in _references(node["lhs"])}
    for inner in node.values():
        yield from _names(inner, text, usable, bound)


def _references(node: object) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if node.get("class") == "COLUMN_REF":
            yield node
        node = list(node.values())
    if isinstance(node, list):
        for inner in node:
            yield from _references(inner)


def _check_function(name: str, text: str, usable: frozenset[str]) -> None:
    if name.lower() not in usable:
        raise ConfigError(
            "the expression uses a function that does not exist or is not permitted",
            hint=near(name.lower(), usable, likeness=0.85)
            or "allowed is what depends on the row alone: no files, clock, chance or totals",
            expression=text,
            function=name,
        )


def _refused_error(text: str, problem: str) -> ConfigError:
    return ConfigError(
        f"the text is not one value computed from a row: {problem}",
        hint="write it as in a SELECT list of DuckDB, such as status <> 'draft'",
        expression=text,
    )
