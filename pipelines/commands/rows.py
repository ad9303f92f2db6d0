"""`headwater rows`: shows one key of a table from the log: now, at a moment, or its history."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.model.log import generation_number
from headwater.pipelines.terminal.control_writer import (
    check_pipeline,
    running_pipelines,
    split_target,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, printable, shared_options, table
from headwater.pipelines.terminal.quantities import time_text
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.model.log import Log
    from headwater.pipelines.time_travel.history.cut_points import CutPoint
    from headwater.pipelines.time_travel.history.key_history import KeyChange

MEANINGS = {"r": "read", "c": "created", "u": "updated", "d": "deleted", "t": "truncated"}


@click.command()
@click.argument("target", metavar="PIPELINE/TABLE")
@click.argument("key")
@click.option("--history", is_flag=True, help="All its changes that the log still has.")
@click.option(
    "--as-of",
    metavar="MOMENT",
    help="The row as it was then: a time or how long ago (as committed at the source), a position "
    "of the source (0/16B3748), or an offset of the log (everything below it).",
)
@log_options
@shared_options
@click.pass_obj
def rows(
    output: Output,
    target: str,
    key: str,
    history: bool,
    as_of: str | None,
    address: LogAddress,
) -> None:
    """Show the row of TABLE with this KEY, from the log.

    TABLE is the source's name, and the row is shown as stored in the log, before filters and other
    transforms after the log. A key of several columns is written 7,abc or order_id=7,line=abc. Only
    the key's own partition is read.
    """
    if history and as_of:
        raise ConfigError(
            "--history and --as-of cannot be used together", hint="give --history or --as-of"
        )
    facts, lines = run_until_signal(_rows(output, address, target, key, history, as_of))
    output.result(facts, lines)


async def _rows(
    output: Output, address: LogAddress, target: str, key: str, history: bool, as_of: str | None
) -> tuple[dict[str, Any], list[str]]:
    from headwater.core_log.foundation.speed import freeze_imports

    with freeze_imports():
        from headwater.pipelines.time_travel.history.key_history import (
            change_as_of,
            change_facts,
            key_bytes,
            key_history,
            newest_change,
            stored_schema,
        )

    pipeline, given = split_target(target)
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        stored = await stored_schema(log, pipeline, given)
        keys = await key_bytes(log, stored, key)
        cut_point = None
        if as_of is not None:
            cut_point = await _cut_point(log, pipeline, stored.topic, as_of)
        if history:
            changes = [each async for each in key_history(log, stored, keys)]
            await _warn_of_compaction(output, log, changes)
        else:
            newest = (
                await newest_change(log, stored.topic, keys, ends=None)
                if cut_point is None
                else await change_as_of(log, stored, keys, cut_point)
            )
            changes = [] if newest is None else [newest]
    facts = {
        "pipeline": pipeline,
        "table": str(stored.schema.table),
        "topic": stored.topic,
        "changes": [change_facts(each) for each in changes],
    }
    if generation_number(stored.topic) > 1:
        output.note(f"from {stored.topic}, the newest generation of the table's topic")
    if not changes:
        output.note("the log has never had this key" if not as_of else "the row did not exist then")
    return facts, _lines(changes) if history else _row_lines(changes)


async def _cut_point(log: "Log", pipeline: str, topic: str, as_of: str) -> "CutPoint":
    from headwater.core_log.model.log import TopicPartition
    from headwater.pipelines.time_travel.history.as_of import parse_as_of
    from headwater.pipelines.time_travel.history.cut_points import find_cut_point

    parsed = parse_as_of(as_of, now_ms=unix_ms())
    count = await log.partition_count(topic)
    partitions = [TopicPartition(topic, number) for number in range(count)]
    return await find_cut_point(log, pipeline, parsed, partitions)


async def _warn_of_compaction(output: Output, log: "Log", changes: "Sequence[KeyChange]") -> None:
    from headwater.core_log.model.log import TopicPartition

    for place in {TopicPartition(each.topic, each.partition) for each in changes}:
        cleaned_to = (await log.bounds([place]))[place].cleaned_to
        if cleaned_to > 0:
            output.note(
                f"compaction may have taken older changes from below {place.partition}:{cleaned_to}"
            )


def _lines(changes: "Sequence[KeyChange]") -> list[str]:
    from headwater.pipelines.terminal.record_lines import row_line

    head = ("OFFSET", "COMMITTED", "TRANSACTION", "", "ROW")
    cells = [
        (
            f"{each.partition}:{each.offset}",
            time_text(each.committed_ms),
            printable(each.at) or "-",
            MEANINGS[each.operation],
            "-" if each.row is None else row_line(each.row),
        )
        for each in changes
    ]
    return table(head, cells) if cells else []


def _row_lines(changes: "Sequence[KeyChange]") -> list[str]:
    from headwater.pipelines.terminal.record_lines import row_line

    return [
        row_line(each.row)
        if each.row is not None
        else f"{MEANINGS[each.operation]} {time_text(each.committed_ms)}"
        for each in changes
    ]
