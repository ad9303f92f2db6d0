"""`headwater schema`: shows a table's schemas in the log, and their differences."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import (
    check_pipeline,
    find_table,
    running_pipelines,
    split_target,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, printable, shared_options, table
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.journal.schemas import StoredSchema

TARGET = click.argument("target", metavar="PIPELINE/TABLE")
HEAD = ("ID", "SINCE", "POSITION", "COLUMNS", "KEY", "CHANGE")


@click.group()
def schema() -> None:
    """Show the schemas of a table."""


@schema.command()
@TARGET
@log_options
@shared_options
@click.pass_obj
def history(output: Output, target: str, address: LogAddress) -> None:
    """List the schemas of PIPELINE/TABLE, the oldest first, with the changes of each."""
    from headwater.pipelines.journal.schemas import differences

    found = run_until_signal(_history(address, target))
    changes = [[], *(differences(*pair) for pair in pairwise(found))]
    rows = [
        (
            str(each.id),
            time_text(each.recorded_ms),
            ", ".join(each.positions.values()) or None,
            len(each.schema.columns),
            ", ".join(each.schema.key) or None,
            "; ".join(_words(change) for change in changed) or None,
        )
        for each, changed in zip(found, changes, strict=True)
    ]
    facts = [
        _facts(each) | {"changes": changed} for each, changed in zip(found, changes, strict=True)
    ]
    output.result(facts, table(HEAD, rows))


@schema.command()
@TARGET
@click.argument("ids", metavar="[FROM] [TO]", nargs=-1, type=click.IntRange(1))
@log_options
@shared_options
@click.pass_obj
def diff(output: Output, target: str, ids: tuple[int, ...], address: LogAddress) -> None:
    """Show the differences between two schemas of PIPELINE/TABLE.

    FROM and TO are ids of `headwater schema history`; the default of TO is the newest, without both
    the last change is shown.
    """
    from headwater.pipelines.journal.schemas import differences

    if len(ids) > 2:
        raise ConfigError("the table has only one schema", given=len(ids))
    found = run_until_signal(_history(address, target))
    newest = found[-1].id
    start = _by_id(found, ids[0] if ids else max(newest - 1, found[0].id))
    end = _by_id(found, ids[1] if len(ids) == 2 else newest)
    changed = differences(start, end)
    lines = [f"{target}: schema {start.id} -> {end.id}"]
    lines += [f"  {_words(each)}" for each in changed] or ["  nothing differs"]
    facts = {"from": _facts(start), "to": _facts(end), "changes": changed}
    output.result(facts, lines)


def _words(change: Mapping[str, str]) -> str:
    what, column = change["what"], printable(change["column"])
    before, after = printable(change["before"]), printable(change["after"])
    if what == "added":
        return f"+ {column} {after}"
    if what == "dropped":
        return f"- {column} {before}"
    name = column if what == "altered" else f"{what} {column}".rstrip()
    return f"{name}: {before} -> {after}"


def _facts(stored: "StoredSchema") -> dict[str, Any]:
    from headwater.pipelines.journal.schemas import column_text

    return {
        "id": stored.id,
        "topic": stored.topic,
        "table": str(stored.schema.table),
        "recorded_ms": stored.recorded_ms,
        "positions": dict(stored.positions),
        "key": list(stored.schema.key),
        "columns": [
            {"name": column.name, "type": column_text(column)} for column in stored.schema.columns
        ],
        "wire": stored.wire.model_dump(),
    }


def _by_id(found: "Sequence[StoredSchema]", id: int) -> "StoredSchema":
    for stored in found:
        if stored.id == id:
            return stored
    known = ", ".join(str(each.id) for each in found)
    raise ConfigError(
        "the table does not have a schema of this id", hint=f"known ids: {known}", id=id
    )


async def _history(address: LogAddress, target: str) -> "list[StoredSchema]":
    from headwater.pipelines.journal.inventory import schemas_of
    from headwater.pipelines.journal.schemas import schemas_of_topic

    pipeline, given = split_target(target)
    if not given:
        raise ConfigError("the argument does not name a table", hint=f"say {pipeline}/TABLE")
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        topics = {
            str(stored.schema.table): topic
            for topic, stored in (await schemas_of(log, pipeline)).items()
        }
        topic = topics[find_table(given, topics, pipeline=pipeline)]
        return await schemas_of_topic(log, pipeline, topic)
