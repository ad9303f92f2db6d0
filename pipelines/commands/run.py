"""`headwater run`: runs the pipelines of a file, or hands them to the process that runs them."""

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.pipelines.terminal.http_options import http_options
from headwater.pipelines.terminal.log_address import data_option
from headwater.pipelines.terminal.output import Output, format_count, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headwater.pipelines.file.http_settings import HttpSettings
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.running.run import Look, Show, Snapshot


def interval_ms(text: str) -> int:
    from headwater.core_log.foundation.units import parse_duration_ms

    try:
        found: int = parse_duration_ms(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if found < 1:
        raise click.BadParameter("the interval is not longer than 0")
    return found


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=Path("pipeline.yaml"))
@click.option(
    "--once",
    is_flag=True,
    help="End when all present changes are delivered.",
)
@click.option(
    "--begin",
    is_flag=True,
    help="Begin a cluster in an empty directory, where `log.listen` is beyond loopback.",
)
@click.option(
    "--migrate",
    is_flag=True,
    help="Where the file asks for other partitions, another key, stricter masks or another value "
    "format, fill the next generation of the topics before going on.",
)
@data_option
@click.option(
    "--log-every",
    metavar="DURATION",
    default="10s",
    show_default=True,
    callback=lambda *given: interval_ms(given[-1]),
    help="Interval of progress lines if the output is no terminal.",
)
@http_options()
@shared_options
@click.pass_obj
def run(
    output: Output,
    path: Path,
    once: bool,
    begin: bool,
    migrate: bool,
    data: Path | None,
    log_every: int,
    http: "Callable[[], HttpSettings]",
) -> None:
    """Run a pipeline file, or all pipeline files of a directory.

    If another process already runs on this log, the file is handed to it: new and changed pipelines
    start there, and their progress is shown here. Ctrl-C then only ends the display.

    Otherwise the first Ctrl-C (or SIGTERM) drains: work in flight is finished. The second ends at
    once, without loss or duplicates. The default PATH is ./pipeline.yaml.

    --http adds an address that stays the same, for Prometheus and probes; it wins over `http:` of
    the file. The address in endpoint.json is new with every start.

    `headwater plan` shows the effect of --migrate. A migration is done once and continues after a
    crash, also without the option; the former topics stay until `headwater drop PIPELINE
    --generations`.
    """
    from headwater.core_log.foundation.speed import freeze_imports, switch_threads_often
    from headwater.pipelines.running.worker_start import spawn
    from headwater.pipelines.terminal.log_place import find_owner

    quiet = logging.ERROR if output.is_quiet else logging.INFO
    level = logging.DEBUG if output.verbosity else quiet
    likely = data or (path if path.is_dir() else path.parent) / "data"
    first_worker = None if find_owner(likely) is not None else spawn(level=level)

    with freeze_imports():
        from headwater.config.redaction import Redaction, set_up_logging
        from headwater.pipelines.running.run import RunOptions
        from headwater.pipelines.running.run import run as run_pipelines
        from headwater.pipelines.terminal.signals import run_until_signal

    set_up_logging(level, scrub=lambda text: output.scrub(text))
    switch_threads_often()

    prints_rows, secrets, names = False, Redaction(), frozenset[str]()

    def load_files() -> "Sequence[LoadedPipeline]":
        from headwater.pipelines.file.loader import load

        nonlocal prints_rows, names
        loaded = [each.with_log_at(data) for each in load(path, environment=os.environ)]
        names = frozenset(each.name for each in loaded)
        kinds = {sink.kind for each in loaded for sink in each.sinks}
        prints_rows = "console" in kinds and sys.stdout.isatty()
        return loaded

    def keep_unsaid(loaded: "Sequence[LoadedPipeline]") -> None:
        from headwater.pipelines.file.loader import redaction_of

        nonlocal secrets
        secrets = secrets.merge([redaction_of(loaded)])
        output.scrub = secrets.scrub

    async def show(look: "Look") -> None:
        import asyncio

        if output.is_quiet or prints_rows:  # the display would overwrite the rows
            await asyncio.Event().wait()
        from headwater.pipelines.watching.progress import ProgressView

        view = ProgressView(look, interval_ms=log_every, has_color=output.has_color)
        await view.watch()

    shown: Show = show
    wanted = RunOptions(
        load_files,
        shown,
        keep_unsaid=keep_unsaid,
        first_worker=first_worker,
        once=once,
        begins=begin,
        migrates=migrate,
        http=http(),
    )
    snapshot = run_until_signal(run_pipelines(wanted))
    for name, pipeline in snapshot["pipelines"].items():
        letters = sum(table["dead_letters"] for table in pipeline["tables"].values())
        if letters:  # with --once no status can be asked for afterwards
            put_aside = format_count(letters, "record")
            output.note(f"{put_aside} of {name} could not be applied: headwater dlq show {name}")
    if once:
        _refuse_undelivered(snapshot, names)
    output.result(snapshot, [])


def _refuse_undelivered(snapshot: "Snapshot", names: frozenset[str]) -> None:
    """Fails if a table was not delivered whole: exit code 0 promises that (decision D5)."""
    from headwater.pipelines.terminal.output import DifferencesFound
    from headwater.pipelines.watching.status import find_undelivered, undelivered_lines

    found = [each for each in find_undelivered(snapshot) if each.pipeline in names]
    if not found:
        return
    tables = {(each.pipeline, each.table) for each in found}
    lines = "".join(f"\n  {line}" for line in undelivered_lines(found))
    raise DifferencesFound(
        f"not everything was delivered: {format_count(len(tables), 'table')} of"
        f" {', '.join(sorted({each.pipeline for each in found}))}{lines}",
        data={**snapshot, "undelivered": [each.as_json() for each in found]},
        lines=[],
    )
