"""Columns that rules have hidden before the log, and whether a new form could show one of them."""

from collections.abc import Collection, Sequence

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.table_schema import Column, DroppedColumn, TableSchema


def hidden_columns(stored: TableSchema) -> list[Column | DroppedColumn]:
    """Those of a form of the log."""
    return [*(each for each in stored.columns if each.mask), *stored.dropped]


def check_hidden(after: TableSchema, before: TableSchema, *, named: Collection[str]) -> None:
    """Raises ConfigError where `after`, as the rules leave it, shows what was hidden in `before`,
    or where nobody can say that it does not. `named` are all names in rules for the table."""
    shown = [each for each in after.columns if not each.mask]
    _check_bare(after, before, shown)
    if _has_same_names(after, before):
        return
    for hidden in hidden_columns(before):
        if (hidden.rule_name or hidden.name) in named:
            found = _suspects(hidden, after, before, shown, named)
            if found:
                raise ConfigError(
                    "a column that a rule hides is gone, and one has come that no rule names",
                    hint=f"add {found[0]} to `mask` or `drop` of the rule, beside {hidden.name}; or"
                    f" write a rule of its own for {after.table}, and leave it out of the other; or"
                    " undo the rename; then headwater resume PIPELINE",
                    table=str(after.table),
                    column=hidden.name,
                    new=", ".join(found),
                )


def _check_bare(after: TableSchema, before: TableSchema, shown: Sequence[Column]) -> None:
    masked = [each for each in before.columns if each.mask]
    names = {each.name for each in masked}
    ids = {each.id for each in masked if each.id and after.id == before.id}
    if bare := sorted(each.name for each in shown if each.name in names or each.id in ids):
        raise ConfigError(
            "a column that was masked is in changes that are yet to come, and no rule masks it",
            hint=f"add {bare[0]} to `mask` of the rule again, beside its later name; then"
            " headwater resume PIPELINE",
            table=str(after.table),
            column=", ".join(bare),
        )


def _has_same_names(after: TableSchema, before: TableSchema) -> bool:
    dropped = [{each.name for each in schema.dropped} for schema in (after, before)]
    return after.names == before.names and dropped[0] == dropped[1]


def _suspects(
    hidden: Column | DroppedColumn,
    after: TableSchema,
    before: TableSchema,
    shown: Sequence[Column],
    named: Collection[str],
) -> list[str]:
    """Columns that may be the hidden one under another name."""
    came = [each for each in shown if each.name not in before.names and each.name not in named]
    if not after.id or before.id not in (0, after.id):  # names are all that there is
        is_there = hidden.name in {each.name for each in after.dropped}.union(after.names)
        return [] if is_there else [each.name for each in came]
    if not hidden.id:
        return [each.name for each in came]
    if hidden.id in {each.id for each in after.columns} | {each.id for each in after.dropped}:
        return []
    return [each.name for each in shown if not each.id]
