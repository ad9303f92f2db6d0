"""Kinds of changes of a table's form, and which of them wait for a person."""

from collections.abc import Iterable, Mapping

ADD_COLUMN, DROP_COLUMN = "add_column", "drop_column"
WIDEN_TYPE, CHANGE_TYPE = "widen_type", "change_type"
CHANGE_KEY = "change_key"
CHANGE_ROWS = "change_rows"
"""Rows came, went or were rewritten without a change in the stream."""
RENAMED = (DROP_COLUMN, ADD_COLUMN)
"""A renamed column is one that went and one that came."""


def forbidden(kinds: Iterable[str], policies: Mapping[str, str]) -> list[str]:
    """Those that wait for a person. `lenient` follows all that loses nothing, and `ignore` is
    about the columns of targets, which get the rows all the same."""
    return sorted(
        kind
        for kind in set(kinds)
        if policies.get(kind) == "fail" or (kind == CHANGE_TYPE and policies.get(kind) == "lenient")
    )
