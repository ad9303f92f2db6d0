"""`headwater pause`, `resume` and `snapshot`: signals that pipelines and sources obey."""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import SourceRejected
from headwater.pipelines.terminal.control_writer import (
    TARGET,
    check_pipeline,
    running_pipelines,
    send_pause,
)
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.signals import run_until_signal


@click.command()
@TARGET
@log_options
@shared_options
@click.pass_obj
def pause(output: Output, target: str, address: LogAddress) -> None:
    """Pause PIPELINE or PIPELINE/TABLE.

    A paused pipeline neither reads its source nor writes to its targets; a paused table is still
    written to the log, but not to targets. The pause lasts over restarts, until `headwater resume`.
    Note that a source keeps unread changes: a PostgreSQL server keeps its write-ahead log.
    """
    result = run_until_signal(send_pause(address, target, is_paused=True))
    output.result(result, [f"{target} will pause; headwater resume {target} continues it"])


@click.command()
@TARGET
@log_options
@shared_options
@click.pass_obj
def resume(output: Output, target: str, address: LogAddress) -> None:
    """Resume PIPELINE or PIPELINE/TABLE.

    It continues at its offsets. A quarantine ends, and the failed work is tried again. Tables that
    were paused one by one stay paused when their pipeline is resumed.
    """
    result = run_until_signal(send_pause(address, target, is_paused=False))
    output.result(result, [f"{target} will continue"])
    still_paused = result["paused_tables"]
    if still_paused and not result["table"]:
        output.note(f"still paused by themselves: {', '.join(still_paused)}")


KIND = "snapshot"
ACTION, WHERE = "action", "where"
SOURCE, RUNNING = "source", "running"

ANSWER_S, LOOK_S = 3.0, 0.1
"""Seconds to wait for a running source's answer, and between two looks."""

Decorator = Callable[[Callable[..., None]], Callable[..., None]]

START = """Read all rows of PIPELINE/TABLE, or of every table of PIPELINE.

The source goes on meanwhile, and newer changes are never overwritten by older rows. It goes on
where it was after a restart. `headwater status` shows how far it is. A table that is
quarantined for a new form is read again, whatever the reason.
"""
ACTIONS = {
    "start": (START, "the rows of {} will be read"),
    "pause": ("Pause the snapshot; changes go on.", "the snapshot of {} will pause"),
    "resume": ("Continue the snapshot where it was paused.", "the snapshot of {} will continue"),
    "stop": (
        "Give the snapshot up: rows that were not read yet come only once they change. A table that"
        " is read again for a new form is then quarantined until `headwater snapshot start"
        " PIPELINE/TABLE`.",
        "the snapshot of {} will end",
    ),
}
"""The description and the answer of each action."""
ONLY_WHERE = click.option(
    "--where", default="", metavar="SQL", help="Only rows that fulfil this condition."
)


@click.group()
def snapshot() -> None:
    """Read existing rows again, while changes continue."""


def _command(action: str, about: str, answer: str) -> click.Command:
    more: Decorator = ONLY_WHERE if action == "start" else lambda command: command

    @click.command(action, help=about)
    @TARGET
    @more
    @log_options
    @shared_options
    @click.pass_obj
    def signal(output: Output, target: str, address: LogAddress, where: str = "") -> None:
        result = run_until_signal(_signal(address, target, action, where))
        output.result(result, [answer.format(target)])
        if not result["is_running"]:
            output.note(
                f"{result['pipeline']} is not running; it receives the signal at its next run"
            )
        elif not result["is_taken_up"]:
            output.note(
                "the source has not accepted the signal yet; "
                f"headwater status {result['pipeline']} shows its progress"
            )

    return signal


for _action, (_about, _answer) in ACTIONS.items():
    snapshot.add_command(_command(_action, _about, _answer))


async def _signal(address: LogAddress, target: str, action: str, where: str) -> Mapping[str, Any]:
    """Sends a signal; returns once it is on disk, and accepted by the source if that runs and
    answers soon.

    Raises `SourceRejected` if the source refuses it.
    """
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.control import Signal, write_control
    from headwater.pipelines.journal.inventory import tables_of
    from headwater.pipelines.terminal.control_writer import find_table, split_target

    pipeline, given = split_target(target)
    running = await running_pipelines(address)
    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, running)
        known = await tables_of(log, pipeline) if given else frozenset[str]()
        known |= set(running.get(pipeline, {}).get("tables", ()))
        table = find_table(given, known, pipeline=pipeline) if given else ""
        options = {ACTION: action} | ({WHERE: where} if where else {})
        signal = Signal(KIND, table, secrets.token_hex(8), options)
        async with audit(log, f"snapshot {action}", target):
            await write_control(log, pipeline, [signal], now_ms=unix_ms())
    is_running = pipeline in running
    return {
        "pipeline": pipeline,
        "table": table or None,
        "action": action,
        "where": where or None,
        "id": signal.id,
        "is_running": is_running,
        "is_taken_up": is_running and await _is_taken_up(address, pipeline, signal.id),
    }


async def _is_taken_up(address: LogAddress, pipeline: str, id: str) -> bool:
    """Returns false if the source has not answered soon, for example during its initial
    snapshot."""
    from headwater.connectors.source import CONTROL, REFUSED

    deadline = time.monotonic() + ANSWER_S
    while True:
        found = (await running_pipelines(address)).get(pipeline, {})
        task = found.get("tasks", {}).get(SOURCE, {})
        answer = task.get("positions", {}).get(f"{CONTROL}{id}")
        if answer == REFUSED:
            result = task["remarks"].get(KIND, {})
            raise SourceRejected(
                result.get("problem") or "the source does not support the signal",
                hint=result.get("hint") or f"headwater status {pipeline}",
            )
        if answer or task.get("state") != RUNNING or time.monotonic() > deadline:
            return bool(answer)
        await asyncio.sleep(LOOK_S)
