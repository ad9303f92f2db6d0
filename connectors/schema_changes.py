"""Schema changes of a table: kinds that wait for a person, and words that foretell DDL."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headwater.connectors.snapshot.reread_limits import RereadEstimate, begun_by
from headwater.connectors.source import DdlOutcome, SourceContext
from headwater.core_log.foundation.errors import ConfigError, SourceRejected

ADD_COLUMN, DROP_COLUMN = "add_column", "drop_column"
WIDEN_TYPE, CHANGE_TYPE = "widen_type", "change_type"
CHANGE_KEY = "change_key"
CHANGE_ROWS = "change_rows"
"""Rows were added, removed or rewritten without a change in the stream."""
RENAMED = (DROP_COLUMN, ADD_COLUMN)
"""Renaming a column counts as dropping one and adding one."""

FOLLOWED, IN_PLACE, READ_AGAIN = "followed", "in place", "read again"
NEW_TOPIC, LEFT_OUT, DIFFERS = "new topic", "left out", "differs"
ANOTHER_NAME = "another name is another table: its rows and changes go into a topic of that name"
NO_CONSTRAINTS = "targets have no such constraints"


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


def not_one_alter_table(statement: str, *, page: str) -> ConfigError:
    return ConfigError(
        "the statement is not one ALTER TABLE without comments",
        hint=f"{page} says what follows other statements",
        statement=statement.strip(),
    )


def several_actions(statement: str) -> ConfigError:
    return ConfigError(
        "the statement has several actions, of which one cannot be tried on a copy",
        hint="try each action in a statement of its own",
        statement=statement.strip(),
    )


def has_foreign_key(statement: str) -> ConfigError:
    return ConfigError(
        "the statement has a foreign key, which would lock another table",
        hint="remove REFERENCES: targets have no such constraints",
        statement=statement.strip(),
    )


def not_captured(table: str) -> SourceRejected:
    return SourceRejected(
        "the pipeline does not capture this table",
        table=table,
        hint="name a table that `tables` of the source chooses",
    )


def not_there(table: str) -> SourceRejected:
    return SourceRejected("the table is not there", table=table, hint="correct its name")


def without_rows(said: DdlOutcome, effect: str) -> DdlOutcome:
    """Returns the outcome where `snapshot.mode: never` forbids to read the table again."""
    why = f"{said.why}; `snapshot.mode` is never, so {effect}"
    return replace(said, outcome=DIFFERS, why=why)


def with_cost(
    said: DdlOutcome,
    kinds: Iterable[str],
    estimate: RereadEstimate,
    *,
    rows_max: int | None,
    context: SourceContext,
) -> DdlOutcome:
    """Returns the outcome with the cost of the re-read, and with what would quarantine the table.
    `rows_max`: the setting `snapshot.reread_max_rows`."""
    why = held_by_kind(kinds, context.schema_changes) or estimate.forbids(rows_max)
    if why:
        why = f"{why}: {begun_by(context.pipeline, said.table)}"
    return replace(said, cost=estimate.in_words(), quarantine=why)
