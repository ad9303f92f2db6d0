"""Asks before something is gone for good."""

import difflib
import sys
from collections.abc import Collection

import click

from headwater.core_log.foundation.errors import ConfigError

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Returns when the user agrees; a script has to say so beforehand."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("this cannot be undone, and the input is no terminal", hint="add --yes")
    click.confirm(question, abort=True, err=True)


def split_target(target: str) -> tuple[str, str]:
    """`shop/public.orders` is a table of a pipeline; `shop` alone is all of it. `shop/` is neither:
    where a script's variable is empty, all of it was never meant."""
    pipeline, slash, table = target.partition("/")
    if slash and not table:
        raise ConfigError(
            "the path has no table",
            hint=f"write {pipeline}/TABLE, or {pipeline} for all of it",
            given=target,
        )
    return pipeline, table


def find_table(given: str, known: Collection[str], *, pipeline: str) -> str:
    """The full name of a table of a pipeline."""
    if given in known:
        return given
    meant = [table for table in known if table.rpartition(".")[2] == given]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(
            "several tables have this name",
            hint=f"say which: {', '.join(sorted(meant))}",
            pipeline=pipeline,
            table=given,
        )
    near = difflib.get_close_matches(given, known, n=1)
    raise ConfigError(
        "the pipeline does not have this table, or no change of it yet",
        hint=f"did you mean {near[0]}?" if near else f"headwater status {pipeline} lists them",
        pipeline=pipeline,
        table=given,
    )
