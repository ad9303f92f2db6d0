"""`headwater drop`: takes down what a pipeline has left at its source and in the log."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from core_log.errors import ConfigError, HeadwaterError
from pipelines.terminal.confirming import confirm, yes_option
from pipelines.terminal.log_address import LogAddress, file_option
from pipelines.terminal.output import Output, shared_options
from pipelines.terminal.signals import run_until_signal
from pipelines.terminal.wishing import check_pipeline, now_ms, running_pipelines

if TYPE_CHECKING:
    from pipelines.file.loading import LoadedPipeline


@click.command()
@click.argument("pipeline")
@click.option(
    "--generations",
    is_flag=True,
    help="Only the former topics of its tables, whose place others have taken by `run --migrate`.",
)
@click.option(
    "--unread",
    is_flag=True,
    help="Of these also topics that a sink has not come to the end of.",
)
@click.option("--data", "with_data", is_flag=True, help="Remove its tables in the targets, too.")
@click.option(
    "--log",
    "log_directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Without a pipeline file: only what is in the log of this data directory.",
)
@click.option("--bootstrap", metavar="HOST:PORT", help="The same for a log that is a cluster.")
@yes_option
@file_option
@shared_options
@click.pass_obj
def drop(
    output: Output,
    pipeline: str,
    generations: bool,
    unread: bool,
    with_data: bool,
    log_directory: Path | None,
    bootstrap: str | None,
    yes: bool,
) -> None:
    """Take down what PIPELINE has left, for good.

    At its source that is what holds back the source's own log, such as a replication slot; in the
    log its topics with all records, its dead letters, its position, its schemas and its wishes;
    with --data its tables in the targets as well. The pipeline must not be running. What has
    failed half way is finished by another run.

    With --generations the pipeline stays as it is and may be running: only topics go that nothing
    is appended to any more.
    """
    address = LogAddress(log_directory, bootstrap)
    if generations:
        if with_data:
            raise ConfigError("only one of --generations and --data can be meant")
        confirm(f"remove the former topics of {pipeline}?", yes=yes)
        gone = run_until_signal(_drop_former(address, pipeline, with_unread=unread))
        output.result({"pipeline": pipeline, "removed": gone}, [f"removed {each}" for each in gone])
        if not gone:
            output.note(f"no table of {pipeline} has a former topic")
        return
    loaded = _loaded(output, address, pipeline)
    if with_data and loaded is None:
        raise ConfigError(
            "only a pipeline file says where its targets are", hint="name it: -f FILE"
        )
    where = "source, log and targets" if with_data else "source and log" if loaded else "log"
    confirm(f"remove all that {pipeline} has left in its {where}?", yes=yes)
    gone = run_until_signal(_drop(output, address, pipeline, loaded, with_data=with_data))
    output.result({"pipeline": pipeline, "removed": gone}, [f"removed {each}" for each in gone])
    if not gone:
        output.note(f"nothing was left of {pipeline}")
    if loaded is None:
        output.note("no pipeline file was given, so its source and its targets were left alone")


def _loaded(output: Output, address: LogAddress, pipeline: str) -> "LoadedPipeline | None":
    if address.file is None:
        return None
    from pipelines.file.given_files import load_named

    return load_named(output, address.file, pipeline)


async def _drop(
    output: Output,
    address: LogAddress,
    pipeline: str,
    loaded: "LoadedPipeline | None",
    *,
    with_data: bool,
) -> list[str]:
    from pipelines.journal.dropping import drop_from_log
    from pipelines.journal.inventory import leavings_of

    if pipeline in await running_pipelines(address):
        raise ConfigError(
            "the pipeline is running", hint="end its `headwater run` first", pipeline=pipeline
        )
    gone: list[str] = []
    async with address.open_or_own() as log:
        if loaded is None:
            await check_pipeline(log, pipeline, {})
        try:
            if loaded is not None:
                gone += await _drop_outside(loaded, with_data=with_data)
            left = await leavings_of(log, pipeline)
            async for each in drop_from_log(log, pipeline, left, now_ms=now_ms()):
                gone.append(each)
        except HeadwaterError:
            for line in _told(gone):
                output.note(line)
            raise
    return gone


async def _drop_former(address: LogAddress, pipeline: str, *, with_unread: bool) -> list[str]:
    from pipelines.journal.dropping import drop_former

    async with address.open_or_own() as log:
        await check_pipeline(log, pipeline, {})
        found = drop_former(log, pipeline, with_unread=with_unread, now_ms=now_ms())
        return [each async for each in found]


async def _drop_outside(loaded: "LoadedPipeline", *, with_data: bool) -> list[str]:
    """First, while the log still knows the pipeline: what cannot be reached now is tried again by
    the next run of this command."""
    from core_log.clock import SystemClock
    from pipelines.loops.build import make_sink, make_source

    gone: list[str] = []
    for part in loaded.sinks if with_data else ():
        sink = make_sink(loaded, part, clock=SystemClock())
        try:
            gone += [f"{each} ({part.name})" for each in await sink.drop()]
        finally:
            await sink.close()
    source = make_source(loaded, clock=SystemClock())
    return [*gone, *(f"{each} (source)" for each in await source.drop())]


def _told(gone: list[str]) -> Iterator[str]:
    return (f"removed before it failed: {each}" for each in gone)
