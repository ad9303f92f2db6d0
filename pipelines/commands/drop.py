"""`headwater drop`: removes a pipeline's data at its source and in the log."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError, HeadwaterError
from headwater.pipelines.terminal.control_writer import (
    check_pipeline,
    confirm,
    running_pipelines,
    split_target,
    yes_option,
)
from headwater.pipelines.terminal.log_address import LogAddress, file_option
from headwater.pipelines.terminal.output import Output, shared_options
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.file.loader import LoadedPipeline


@click.command()
@click.argument("target", metavar="PIPELINE[/TABLE]")
@click.option(
    "--generations",
    is_flag=True,
    help="Only former topics of its tables, which `run --migrate` has replaced.",
)
@click.option(
    "--unread",
    is_flag=True,
    help="Include former topics that a sink has not finished.",
)
@click.option("--data", "with_data", is_flag=True, help="Also remove its tables in the targets.")
@click.option(
    "--log",
    "log_directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory of the log, in place of `log.path` of the file; without a file only the data "
    "in this log is removed.",
)
@click.option(
    "--bootstrap", metavar="HOST:PORT", help="The same for a log that is a Kafka cluster."
)
@yes_option
@file_option
@shared_options
@click.pass_obj
def drop(
    output: Output,
    target: str,
    generations: bool,
    unread: bool,
    with_data: bool,
    log_directory: Path | None,
    bootstrap: str | None,
    yes: bool,
) -> None:
    """Remove the data of PIPELINE for good, or reset one TABLE of it.

    At the source it removes objects that hold back the source's own log, such as a replication
    slot; in the log the pipeline's topics, dead letters, position, schemas and signals; with --data
    its tables in the targets too. The pipeline must not be running. If it fails half way, run it
    again.

    For PIPELINE/TABLE it removes the topics, schemas, dead letters, signals and the table's own
    part of the source position, and with --data its table in the targets. The next run reads the
    table again, as a new table of the file; all other tables continue. Without --data a target
    keeps its rows, and needs `headwater rebuild PIPELINE/TABLE --swap`.

    With --generations the pipeline stays, and may be running: only topics without further appends
    are removed.
    """
    address = LogAddress(log_directory, bootstrap)
    pipeline, table = split_target(target)
    if table:
        if generations or unread:
            raise ConfigError(
                "the option does not apply to a table", hint=f"drop {pipeline} --generations"
            )
        _reset_table(output, address, pipeline, table, with_data=with_data, yes=yes)
        return
    if generations:
        if with_data:
            raise ConfigError("--generations and --data cannot be used together")
        confirm(f"remove the former topics of {pipeline}?", yes=yes)
        gone = run_until_signal(_drop_former(address, pipeline, with_unread=unread))
        output.result({"pipeline": pipeline, "removed": gone}, [f"removed {each}" for each in gone])
        if not gone:
            output.note(f"no table of {pipeline} has a former topic")
        return
    loaded = _load(output, address, pipeline)
    if with_data and loaded is None:
        raise ConfigError(
            "the targets are known only from a pipeline file", hint="name it: -f FILE"
        )
    where = "source, log and targets" if with_data else "source and log" if loaded else "log"
    confirm(f"remove all data of {pipeline} in its {where}?", yes=yes)
    gone = run_until_signal(_drop(output, address, pipeline, loaded, with_data=with_data))
    output.result({"pipeline": pipeline, "removed": gone}, [f"removed {each}" for each in gone])
    if not gone:
        output.note(f"{pipeline} had no data left")
    if loaded is None:
        output.note("no pipeline file was given: source and targets were not changed")


def _reset_table(
    output: Output,
    address: LogAddress,
    pipeline: str,
    given: str,
    *,
    with_data: bool,
    yes: bool,
) -> None:
    loaded = _load(output, address, pipeline)
    if loaded is None:
        raise ConfigError(
            "a source reads a table again only by its pipeline file", hint="name it: -f FILE"
        )
    where = "log and targets" if with_data else "log"
    confirm(f"remove {pipeline}/{given} from the {where}, and read it again?", yes=yes)
    table, gone = run_until_signal(_drop_table(output, address, loaded, given, with_data=with_data))
    result = {"pipeline": pipeline, "table": table, "removed": gone}
    output.result(result, [f"removed {each}" for each in gone])
    output.note(f"the next headwater run reads {table} again")
    if not with_data:
        output.note(
            f"targets keep their rows until then: headwater rebuild {pipeline}/{table} --swap"
        )


async def _drop_table(
    output: Output,
    address: LogAddress,
    loaded: "LoadedPipeline",
    given: str,
    *,
    with_data: bool,
) -> tuple[str, list[str]]:
    from headwater.connectors.source import Resettable
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.control import end_drop, read_dropping
    from headwater.pipelines.journal.inventory import (
        drop_table_from_log,
        every_schema_of,
        tables_of,
    )
    from headwater.pipelines.loops.assembly import make_source
    from headwater.pipelines.terminal.control_writer import find_table

    pipeline = loaded.name
    await _check_at_rest(address, pipeline)
    source = make_source(loaded, clock=SystemClock())
    if not isinstance(source, Resettable):
        raise ConfigError(
            "a source of this type cannot read one table again",
            hint=f"headwater drop {pipeline} takes the whole pipeline down",
            type=loaded.source.kind,
        )
    gone: list[str] = []
    async with address.open_or_own() as log:
        broken_off = await read_dropping(log, pipeline) - {""}
        known = broken_off | await tables_of(log, pipeline)
        table = find_table(given, known, pipeline=pipeline)
        every = await every_schema_of(log, pipeline)
        mine = [each for each in every.values() if str(each.schema.table) == table]
        if not mine:  # only the end of a drop that was broken off is missing
            await end_drop(log, pipeline, [table], now_ms=unix_ms())
            return table, gone
        parts = source.parts_of(mine[0].schema.table)
        topics = {each.topic for each in mine}
        async with audit(log, "drop", f"{pipeline}/{table}", {"data": with_data}):
            try:
                async with keep_tasks_from_beginning(address, log, pipeline, table):
                    if with_data:
                        gone += await _drop_from_targets(loaded, log, table, topics)
                found = drop_table_from_log(log, pipeline, table, parts=parts, now_ms=unix_ms())
                async for each in found:
                    gone.append(each)
            except HeadwaterError:
                for line in _describe(gone):
                    output.note(line)
                raise
    return table, gone


async def _drop_from_targets(
    loaded: "LoadedPipeline", log: "KafkaLog", table: str, topics: set[str]
) -> list[str]:
    """Checks that every sink can do it before anything is removed."""
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.loops.assembly import make_sink
    from headwater.pipelines.time_travel.verify.table_selection import subject_of, subjects_of
    from headwater.sinks.sink import TableDroppable

    subject = subject_of(await subjects_of(loaded, log), table, pipeline=loaded.name)
    if len(subject.sources) > 1:
        raise ConfigError(
            "the target table has rows of other tables too",
            hint=f"leave out --data, and then: headwater rebuild {loaded.name}/{subject.target}"
            " --swap",
            table=table,
            target=str(subject.target),
        )
    gone: list[str] = []
    sinks = [(part, make_sink(loaded, part, clock=SystemClock())) for part in loaded.sinks]
    try:
        for part, sink in sinks:
            if not isinstance(sink, TableDroppable):
                raise ConfigError(
                    "a sink of this type cannot remove one table",
                    hint="leave out --data, and remove its data by hand",
                    sink=part.name,
                    type=part.kind,
                )
        for part, sink in sinks:
            if isinstance(sink, TableDroppable):
                dropped = await sink.drop_table(subject.target, topics)
                gone += [f"{each} ({part.name})" for each in dropped]
    finally:
        for _, sink in sinks:
            await sink.close()
    return gone


async def _check_at_rest(address: LogAddress, pipeline: str) -> None:
    if pipeline in await running_pipelines(address):
        raise ConfigError(
            "the pipeline is running", hint="end its `headwater run` first", pipeline=pipeline
        )


@asynccontextmanager
async def keep_tasks_from_beginning(
    address: LogAddress, log: "KafkaLog", pipeline: str, table: str = ""
) -> AsyncIterator[None]:
    """While data outside the log is removed: no task of the pipeline begins on any machine. A
    failure here leaves a pipeline that can go on."""
    from headwater.pipelines.journal.control import begin_drop, end_drop, read_dropping

    is_repeated = table in await read_dropping(log, pipeline)
    await begin_drop(log, pipeline, table, now_ms=unix_ms())
    try:
        if address.is_reached_from_elsewhere:
            await _check_at_rest(address, pipeline)  # a run that began since the first look
        yield
    except HeadwaterError:
        if not is_repeated:
            await end_drop(log, pipeline, [table], now_ms=unix_ms())
        raise


def _load(output: Output, address: LogAddress, pipeline: str) -> "LoadedPipeline | None":
    if address.file is None:
        return None
    return address.load_named(output, pipeline, known="the source is")


async def _drop(
    output: Output,
    address: LogAddress,
    pipeline: str,
    loaded: "LoadedPipeline | None",
    *,
    with_data: bool,
) -> list[str]:
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.inventory import drop_from_log, leavings_of

    await _check_at_rest(address, pipeline)
    gone: list[str] = []
    async with address.open_or_own() as log:
        if loaded is None:
            await check_pipeline(log, pipeline, {})
        async with audit(log, "drop", pipeline, {"data": with_data}):
            try:
                async with keep_tasks_from_beginning(address, log, pipeline):
                    if loaded is not None:
                        gone += await _drop_outside(loaded, with_data=with_data)
                left = await leavings_of(log, pipeline)
                async for each in drop_from_log(log, pipeline, left, now_ms=unix_ms()):
                    gone.append(each)
            except HeadwaterError:
                for line in _describe(gone):
                    output.note(line)
                raise
    return gone


async def _drop_former(address: LogAddress, pipeline: str, *, with_unread: bool) -> list[str]:
    from headwater.pipelines.journal.audit import audit
    from headwater.pipelines.journal.inventory import drop_former

    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, {})
        async with audit(log, "drop", pipeline, {"former": True, "unread": with_unread}):
            found = drop_former(log, pipeline, with_unread=with_unread, now_ms=unix_ms())
            return [each async for each in found]


async def _drop_outside(loaded: "LoadedPipeline", *, with_data: bool) -> list[str]:
    """Removes data outside the log first, while the log still has the pipeline: the next run of
    this command repeats a failed removal."""
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.loops.assembly import make_sink, make_source

    gone: list[str] = []
    for part in loaded.sinks if with_data else ():
        sink = make_sink(loaded, part, clock=SystemClock())
        try:
            gone += [f"{each} ({part.name})" for each in await sink.drop()]
        finally:
            await sink.close()
    source = make_source(loaded, clock=SystemClock())
    return [*gone, *(f"{each} (source)" for each in await source.drop())]


def _describe(gone: list[str]) -> Iterator[str]:
    return (f"removed before it failed: {each}" for each in gone)
