"""`headwater doctor`: everything that could stop a pipeline, each with what helps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.pipelines.terminal.log_address import DEFAULT_DATA, DEFAULT_FILE, LogAddress
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
@shared_options
@click.pass_obj
def doctor(output: Output, path: Path | None) -> None:
    """Examine the machine, and what the pipelines of PATH need; changes nothing.

    PATH is a pipeline file or a directory of them; without it ./pipeline.yaml, where there is one.
    Java is asked for only where a sink needs it. A log at rest is opened for a moment, where a
    source can say whether it can go on from where the log says that it stands. Pipelines that the
    log remembers and no file speaks of are named while somebody runs on that log. Exit code 3 means
    that something cannot be reached or used, 4 that all is well but for what such pipelines have
    left; other remarks are no failure.
    """
    if path is None and DEFAULT_FILE.is_file():
        path = DEFAULT_FILE
    pipelines = _load(output, path)
    found = run_until_signal(_examine(pipelines))
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


def _load(output: Output, path: Path | None) -> "list[LoadedPipeline]":
    if path is None:
        return []
    from headwater.pipelines.file.given_files import load_given

    return load_given(output, path)


async def _examine(pipelines: "Sequence[LoadedPipeline]") -> "list[DoctorResult]":
    from headwater.pipelines.preview.doctor_checks import SPARK, examine_machine, examine_pipeline

    embedded = {each.log_path for each in pipelines if each.spec.log.type == "embedded"}
    directories = sorted(embedded) if pipelines else [DEFAULT_DATA]
    needs_java = any(part.kind == SPARK for each in pipelines for part in each.sinks)
    found = list(examine_machine(directories, needs_java=needs_java))
    for pipeline in pipelines:
        found += await examine_pipeline(pipeline)
    found += await _examine_logs(pipelines)
    return found


async def _examine_logs(pipelines: "Sequence[LoadedPipeline]") -> "list[DoctorResult]":
    """Of a cluster always; of our own only where somebody runs: taking over a log at rest would be
    more than to look."""
    from headwater.pipelines.preview.doctor_checks import DoctorResult, examine_log
    from headwater.pipelines.terminal.resting_log import log_as_found

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
    return [*lines, f"         {each.cure}"] if each.problem and each.cure else lines
