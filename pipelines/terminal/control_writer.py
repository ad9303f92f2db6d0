"""Finds what a command's target means in a log, and writes there what is wanted of it."""

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.log_address import LogAddress

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

import difflib
import sys
from collections.abc import Collection

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Returns when the user agrees; a script has to say so beforehand."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "the command cannot be undone, and its input is no terminal", hint="add --yes"
        )
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
    if given in known:
        return given
    meant = [table for table in known if table.endswith(f".{given}")]
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


TARGET = click.argument("target", metavar="PIPELINE[/TABLE]")


async def send_pause(address: LogAddress, target: str, *, is_paused: bool) -> Mapping[str, Any]:
    """Returns once the signal is on disk; who runs the pipeline follows it within moments."""
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.control import pause_signal, read_desired, write_control
    from headwater.pipelines.journal.inventory import tables_of

    pipeline, given = split_target(target)
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        tables = await tables_of(log, pipeline) if given else frozenset()
        table = find_table(given, tables, pipeline=pipeline) if given else ""
        signal = pause_signal(table=table, is_paused=is_paused, id=secrets.token_hex(8))
        async with audit(log, "pause" if is_paused else "resume", target):
            await write_control(log, pipeline, [signal], now_ms=unix_ms())
        now = await read_desired(log, pipeline)
    return {
        "pipeline": pipeline,
        "table": table or None,
        "wanted": signal.options["wanted"],
        "id": signal.id,
        "is_running": pipeline in running,
        "is_paused": now.is_paused,
        "paused_tables": sorted(now.paused_tables),
    }


async def running_pipelines(address: LogAddress) -> Mapping[str, Any]:
    """Returns the status of each pipeline from the process that runs them over this log; none where
    nobody does. Pipelines that only other machines run have a name alone."""
    elsewhere: dict[str, Any] = {}
    if address.is_reached_from_elsewhere:
        from headwater.pipelines.running.assignor import pipelines_of_members

        async with address.open() as log:
            shared = await pipelines_of_members(log)
        elsewhere = {
            name: {"tasks": {}, "tables": {}, "member": each} for name, each in shared.items()
        }
    owner = address.running_owner()
    if owner is None:
        return elsewhere
    return {**elsewhere, **(await asyncio.to_thread(owner.status))["pipelines"]}


async def check_pipeline(log: "KafkaLog", pipeline: str, running: Mapping[str, Any]) -> None:
    """A log knows the pipelines that have left something there, and who runs them those that have
    not yet."""
    from headwater.pipelines.journal.inventory import every_schema_of, pipelines_in

    if pipeline in running or await every_schema_of(log, pipeline):
        return
    known = await pipelines_in(log)
    if pipeline not in known:
        raise ConfigError(
            "the log has no pipeline of this name",
            hint=f"known pipelines: {', '.join(sorted(known))}"
            if known
            else "the pipeline has to run first: headwater run pipeline.yaml",
            pipeline=pipeline,
        )
