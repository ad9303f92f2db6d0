"""The names of columns in the target, whose names may be shorter."""

from collections.abc import Iterable

from headwater.core_log.foundation.errors import SchemaRefused
from headwater.core_log.model.table_schema import TableId
from headwater.sinks.object_names import fit
from headwater.sinks.own_columns import OWN


def fit_columns(
    table: TableId, names: Iterable[str], *, bytes_max: int, is_case_sensitive: bool
) -> dict[str, str]:
    """Returns source column to target column; raises `SchemaRefused` if two get the same name."""
    fitted = {name: fit(name, bytes_max=bytes_max) for name in names}
    taken: dict[str, str] = {}
    for name, short in fitted.items():
        folded = short if is_case_sensitive else short.casefold()
        if folded in taken:
            raise SchemaRefused(
                "two columns have the same name in the target",
                table=str(table),
                columns=(taken[folded], name),
                hint="rename one of them with `transform: rename`",
            )
        if folded.startswith(OWN) or "\0" in name or not name:
            raise SchemaRefused(
                "a column's name cannot be used in the target",
                table=str(table),
                column=name,
                hint="rename it with `transform: rename`",
            )
        taken[folded] = name
    return fitted
