"""`headwater doctor`: everything that could stop a pipeline, each with a hint."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.pipelines.terminal.log_address import (
    DEFAULT_DATA,
    DEFAULT_FILE,
    LogAddress,
    data_option,
)
from headwater.pipelines.terminal.output import (
    DependencyMissing,
    DifferencesFound,
    Output,
    format_count,
    shared_options,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline
    from headwater.pipelines.preview.doctor_checks import DoctorResult


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True), required=False)
@data_option
@shared_options
@click.pass_obj
def doctor(output: Output, path: Path | None, data: Path | None) -> None:
    """Check the machine, and the systems of the pipelines of PATH; changes nothing.

    PATH is a pipeline file or a directory of them; the default is ./pipeline.yaml, if it exists.
    Java is required only if a sink needs it. If a source can check its resume position, a log
    without an owner is opened briefly. Pipelines in the log without a file are shown while a
    process runs on that log.

    Exit code 3 means that a system cannot be reached or used, 4 that all is well except remains of
    such pipelines; other remarks are no failure.
    """
    if path is None and DEFAULT_FILE.is_file():
        path = DEFAULT_FILE
    pipelines = _load(output, path, data)
    found = run_until_signal(_examine(pipelines, data or DEFAULT_DATA))
    facts = [each.facts() for each in found]
    lines = [line for each in found for line in _lines(output, each)]
    problems = [each for each in found if each.is_fatal]
    orphans = [each for each in found if each.is_orphan]
    if problems:
        problem = f"{format_count(len(problems), 'problem')} found"
        raise DependencyMissing(problem, data=facts, lines=lines)
    if orphans:
        problem = f"{format_count(len(orphans), 'pipeline')} left behind"
        raise DifferencesFound(problem, data=facts, lines=lines)
    output.result(facts, lines)


def _load(output: Output, path: Path | None, data: Path | None) -> "list[LoadedPipeline]":
    if path is None:
        return []
    from headwater.pipelines.file.loader import load_given

    return load_given(output, path, data=data)


async def _examine(pipelines: "Sequence[LoadedPipeline]", data: Path) -> "list[DoctorResult]":
    """`data` is the directory of a log that no file names."""
    from headwater.pipelines.preview.doctor_checks import SPARK, examine_machine, examine_pipeline

    embedded = {each.log_path for each in pipelines if each.spec.log.type == "embedded"}
    directories = sorted(embedded) if pipelines else [data]
    needs_java = any(part.kind == SPARK for each in pipelines for part in each.sinks)
    found = list(examine_machine(directories, needs_java=needs_java))
    for pipeline in pipelines:
        found += await examine_pipeline(pipeline)
    found += await _examine_logs(pipelines)
    return found


async def _examine_logs(pipelines: "Sequence[LoadedPipeline]") -> "list[DoctorResult]":
    """Checks the logs: a cluster always, an embedded log only if a process runs it. Taking over a
    log without an owner would be more than a check."""
    from headwater.pipelines.preview.doctor_checks import DoctorResult, examine_log
    from headwater.pipelines.terminal.log_place import log_as_found

    found: list[DoctorResult] = []
    names = [pipeline.name for pipeline in pipelines]
    clusters = {each.log_path: each for each in pipelines if each.spec.log.type == "kafka"}
    for pipeline in clusters.values():
        try:
            async with log_as_found(pipeline) as cluster:
                assert cluster is not None, "a cluster is never found missing"
                found += await examine_log(cluster, names)
        except HeadwaterError as error:
            scrub = pipeline.redaction.scrub
            found.append(
                DoctorResult("log", scrub(error.statement), scrub(error.hint), is_fatal=True)
            )
    for directory in sorted({each.log_path for each in pipelines} - clusters.keys()):
        try:
            async with LogAddress(directory, None).open() as log:
                found += await examine_log(log, names)
        except LogUnavailable:
            continue
    return found


def _lines(output: Output, each: "DoctorResult") -> list[str]:
    colors = {"ok": "green", "remark": "yellow", "problem": "red"}
    mark = output.style(f"{each.mark:<7}", fg=colors[each.mark])
    lines = [f"{mark}  {each.what}" + (f": {each.problem}" if each.problem else "")]
    return [*lines, f"         {each.hint}"] if each.problem and each.hint else lines
