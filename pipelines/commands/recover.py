"""`headwater recover`: brings source, log and targets together again after a restore of the log."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.core_log.foundation.errors import ConfigError, DirectoryInUse, HeadwaterError
from headwater.pipelines.terminal.log_address import data_option
from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    printable,
    shared_options,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.model.log import Log
    from headwater.pipelines.file.loaded_parts import LoadedPart
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.running.run import Look, Snapshot
    from headwater.pipelines.time_travel.verify.table_selection import ComparedTable

MISMATCH = "position_mismatch"


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@data_option
@shared_options
@click.pass_obj
def recover(output: Output, path: Path, data: Path | None) -> None:
    """Read the tables of a restored log again, and rebuild the targets from it.

    A log that was restored from a backup is behind its source, which has forgotten the changes in
    between, and behind its targets, which hold them. First each source continues, or reads all its
    tables again if it must; then each table of each target is rebuilt, compared with the log and
    swapped in. Afterwards `headwater run` goes on. It may be repeated after a failure.

    No `run` may use the log meanwhile. Tables that keep a history (`append`, `scd2`) lose what the
    log has lost; the former table stays beside the new one.
    """
    from headwater.config.redaction import set_up_logging
    from headwater.pipelines.file.loader import load, redaction_of
    from headwater.pipelines.terminal.log_place import PROPERTIES, find_owner

    loaded = [each.with_log_at(data) for each in load(path, environment=os.environ)]
    output.scrub = redaction_of(loaded).scrub
    set_up_logging(logging.ERROR if output.is_quiet else logging.INFO, scrub=output.scrub)
    owner = find_owner(loaded[0].log_path)
    if owner is not None:
        raise DirectoryInUse(
            "a process uses the log", hint="stop it first", process=owner.pid, path=str(path)
        )
    if loaded[0].spec.log.type == "embedded" and not (loaded[0].log_path / PROPERTIES).is_file():
        raise ConfigError(
            "the directory has no log",
            hint="headwater log restore FROM DIR, or name its directory: --data DIR",
            directory=str(loaded[0].log_path),
        )
    _read_sources(loaded)
    done, failures = run_until_signal(_rebuild_all(output, loaded))
    facts = {"rebuilt": done, "failed": failures}
    lines = [f"{format_count(len(done), 'table')} rebuilt: {', '.join(done) or 'none'}"]
    if failures:
        told = [f"{name}: {reason}" for name, reason in failures.items()]
        problem = f"{format_count(len(failures), 'table')} could not be rebuilt"
        raise DifferencesFound(problem, data=facts, lines=[*lines, *told])
    place = "" if data is None else f" --data {data}"
    output.result(facts, [*lines, f"headwater run {path}{place}"])


def _read_sources(loaded: "Sequence[LoadedPipeline]") -> None:
    """Brings the log up to its sources, without any sink."""
    import asyncio

    from headwater.pipelines.running.run import RunOptions
    from headwater.pipelines.running.run import run as run_pipelines
    from headwater.pipelines.watching.status import find_undelivered, undelivered_lines

    async def show_nothing(_: "Look") -> None:
        await asyncio.Event().wait()

    sources = [replace(each, source=_reading_again(each), sinks=()) for each in loaded]
    snapshot: Snapshot = run_until_signal(
        run_pipelines(RunOptions(lambda: sources, show_nothing, once=True))
    )
    if missing := find_undelivered(snapshot):
        raise DifferencesFound(
            "not every table was read, so no target is rebuilt",
            data={"undelivered": [each.as_json() for each in missing]},
            lines=undelivered_lines(missing),
        )


def _reading_again(loaded: "LoadedPipeline") -> "LoadedPart":
    """The source, which reads all rows again where the changes since its position are lost."""
    from headwater.pipelines.file.loaded_parts import SOURCE, part_again

    part = loaded.source
    if not hasattr(part.settings, MISMATCH):
        return part
    return part_again(SOURCE, {**part.content, MISMATCH: "resnapshot"}, is_source=True)


async def _rebuild_all(
    output: Output, loaded: "Sequence[LoadedPipeline]"
) -> tuple[list[str], dict[str, str]]:
    """Returns the tables that were rebuilt, and those that were not with the reason."""
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.terminal.log_place import log_as_found
    from headwater.pipelines.time_travel.verify.table_selection import subjects_of

    done: list[str] = []
    failures: dict[str, str] = {}
    async with log_as_found(loaded[0]) as log:
        assert log is not None, "the sources were read into this log"
        for pipeline in loaded:
            async with audit(log, "recover", pipeline.name) as outcome:
                for subject in await subjects_of(pipeline, log):
                    for part in pipeline.sinks:
                        name = printable(f"{pipeline.name}/{subject.target} in {part.name}")
                        output.note(f"rebuilding {name}")
                        if reason := await _rebuild(pipeline, part, subject, log):
                            failures[name] = output.scrub(reason)
                        else:
                            done.append(name)
                if failures:
                    outcome.problem = f"{format_count(len(failures), 'table')} not rebuilt"
    return done, failures


async def _rebuild(
    loaded: "LoadedPipeline", part: "LoadedPart", subject: "ComparedTable", log: "Log"
) -> str:
    """Returns why the table was not swapped in; empty if it was."""
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.time_travel.rebuild.rebuild import (
        RebuildOptions,
        TableRebuild,
        rebuild,
    )

    wanted = RebuildOptions(swaps=True, verifies=True)
    nothing: Any = lambda _: None  # noqa: E731 - progress goes to the log lines
    try:
        rebuilt = await rebuild(
            TableRebuild(loaded, part, subject),
            log,
            wanted,
            is_running=False,
            clock=SystemClock(),
            reporter=nothing,
        )
    except HeadwaterError as error:
        return str(error)
    if rebuilt.verdict is not None and not rebuilt.verdict.is_as_told:
        return rebuilt.verdict.problem or "the copy differs from the log"
    return ""
