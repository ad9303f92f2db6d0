"""Kinds of schema changes of a table, and those that wait for a person."""

from collections.abc import Iterable, Mapping

ADD_COLUMN, DROP_COLUMN = "add_column", "drop_column"
WIDEN_TYPE, CHANGE_TYPE = "widen_type", "change_type"
CHANGE_KEY = "change_key"
CHANGE_ROWS = "change_rows"
"""Rows were added, removed or rewritten without a change in the stream."""
RENAMED = (DROP_COLUMN, ADD_COLUMN)
"""Renaming a column counts as dropping one and adding one."""


def allows_in_place(kinds: Iterable[str], policies: Mapping[str, str]) -> bool:
    """Returns whether targets rename columns, and fill added ones, instead of leaving them out."""
    return all(policies.get(kind, "evolve") in ("evolve", "lenient") for kind in kinds)


def find_forbidden(kinds: Iterable[str], policies: Mapping[str, str]) -> list[str]:
    """Returns the kinds that wait for a person. `lenient` follows all changes that lose nothing;
    `ignore` only concerns columns of targets, which get the rows all the same."""
    return sorted(
        kind
        for kind in set(kinds)
        if policies.get(kind) == "fail" or (kind == CHANGE_TYPE and policies.get(kind) == "lenient")
    )


def held_by_kind(kinds: Iterable[str], policies: Mapping[str, str]) -> str:
    """Returns why a table waits for a person; empty where the file allows all of the kinds."""
    found = find_forbidden(kinds, policies)
    return f"`schema_changes` does not allow {', '.join(found)}" if found else ""
