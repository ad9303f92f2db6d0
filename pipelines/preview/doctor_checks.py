"""Checks of what could stop or hurt pipelines before they start: machine, log, sources and
targets."""

import asyncio
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import (
    Diagnostic,
    HeadwaterError,
    LogRejected,
    LogUnavailable,
)
from headwater.pipelines.terminal.quantities import size_text

if TYPE_CHECKING:
    from headwater.connectors.source import Source
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.model.changes import Positions
    from headwater.pipelines.file.loader import LoadedPipeline

PYTHON_MIN, JAVA_MIN = (3, 11), 17
DISK_BYTES_MIN = 1 << 30
OPEN_FILES_MIN = 4_096
EXAMINE_S_MAX, LOG_S_MAX = 30.0, 10.0
SPARK = "spark"
"""The one sink that needs Java."""


@dataclass(frozen=True, slots=True)
class DoctorResult:
    """One thing that was looked at; nothing is wrong with it where there is no problem."""

    what: str
    """Such as `python`, `disk`, or `shop source`."""
    problem: str = ""
    hint: str = ""
    is_fatal: bool = False
    is_orphan: bool = False
    """It is left of something that is not there any more."""

    @classmethod
    def of(cls, what: str, finding: Diagnostic) -> "DoctorResult":
        return cls(what, finding.problem, finding.hint, finding.is_fatal)

    @property
    def mark(self) -> str:
        return "ok" if not self.problem else "problem" if self.is_fatal else "remark"

    def facts(self) -> dict[str, object]:
        return asdict(self)


def examine_machine(directories: Sequence[Path], *, needs_java: bool) -> Iterator[DoctorResult]:
    yield check_python(sys.version_info[:2])
    if needs_java:
        yield check_java(_java_version())
    yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    for directory in directories:
        yield check_directory(directory)


async def examine_pipeline(loaded: "LoadedPipeline") -> list[DoctorResult]:
    """Asks the source and every sink what stands in their way; none of them changes anything."""
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.pipelines.loops.assembly import make_sink, make_source

    clock = SystemClock()
    found: list[DoctorResult] = []
    try:
        source = make_source(loaded, clock=clock)
        found += await _examine(loaded, "source", _of_source(loaded, source))
    except HeadwaterError as error:
        found.append(_failure_of(loaded, "source", error))
    for part in loaded.sinks:
        try:
            sink = make_sink(loaded, part, clock=clock)
        except HeadwaterError as error:
            found.append(_failure_of(loaded, part.name, error))
            continue
        try:
            found += await _examine(loaded, part.name, sink.examine())
        finally:
            await sink.close()
    return found


async def _of_source(loaded: "LoadedPipeline", source: "Source") -> list[Diagnostic]:
    """A log that cannot be read is found here, as a run would find it."""
    from headwater.connectors.source import Resuming

    found = list(await source.examine())
    if isinstance(source, Resuming):
        try:
            found += await source.examine_position(lambda: _read_stored(loaded))
        except HeadwaterError as error:
            found.append(Diagnostic(error.statement, error.hint))
    return found


async def _read_stored(loaded: "LoadedPipeline") -> "Positions":
    from headwater.pipelines.journal.commits import load_positions
    from headwater.pipelines.journal.generations import source_parts
    from headwater.pipelines.terminal.log_place import log_as_found

    try:
        async with asyncio.timeout(LOG_S_MAX), log_as_found(loaded) as log:
            return {} if log is None else source_parts(await load_positions(log, loaded.name))
    except LogRejected:
        return {}  # no pipeline has run on this log yet
    except TimeoutError:
        raise LogUnavailable(
            "the log does not answer", hint="check its address under `log`"
        ) from None


async def examine_log(log: "KafkaLog", known: Sequence[str]) -> list[DoctorResult]:
    """Pipelines that have left something in the log, and that no file speaks of."""
    from headwater.pipelines.journal.inventory import pipelines_in

    orphans = sorted(await pipelines_in(log) - set(known))
    found = [
        DoctorResult(
            "log",
            f"pipeline {name} has topics or positions, but no file here",
            f"headwater drop {name}, with its file if it still exists",
            is_orphan=True,
        )
        for name in orphans
    ]
    return found or [DoctorResult("log")]


async def _examine(
    loaded: "LoadedPipeline", task: str, examining: Awaitable[Sequence[Diagnostic]]
) -> list[DoctorResult]:
    what = f"{loaded.name} {task}"
    try:
        async with asyncio.timeout(EXAMINE_S_MAX):
            findings = await examining
    except HeadwaterError as error:
        return [_failure_of(loaded, task, error)]
    except TimeoutError:
        problem = f"no answer within {EXAMINE_S_MAX:.0f} s"
        cure = "look whether the address is right and lets connections through"
        return [DoctorResult(what, problem, cure, is_fatal=True)]
    scrub = loaded.redaction.scrub
    return [
        DoctorResult(what, scrub(each.problem), scrub(each.hint), each.is_fatal)
        for each in findings
    ] or [DoctorResult(what)]


def _failure_of(loaded: "LoadedPipeline", task: str, error: HeadwaterError) -> DoctorResult:
    scrub = loaded.redaction.scrub
    return DoctorResult(
        f"{loaded.name} {task}",
        scrub(error.statement),
        scrub(error.hint),
        is_fatal=True,
    )


def check_python(version: tuple[int, int]) -> DoctorResult:
    if version >= PYTHON_MIN:
        return DoctorResult(f"python {platform.python_version()}")
    least = ".".join(map(str, PYTHON_MIN))
    return DoctorResult(
        "python", f"python is older than {least}", f"install {least}", is_fatal=True
    )


def _java_version() -> str | None:
    """Returns the output of `java -version`; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin/java") if home else shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stderr + done.stdout


def check_java(said: str | None) -> DoctorResult:
    cure = "apt install openjdk-17-jre-headless (or brew install openjdk@17), or set JAVA_HOME"
    found = re.search(r'version "(?:1\.)?(\d+)', said or "")
    if found is None:
        problem = "the spark sink needs Java, and there is none"
        return DoctorResult("java", problem, cure, is_fatal=True)
    version = int(found[1])
    if version < JAVA_MIN:
        problem = f"the spark sink needs Java {JAVA_MIN} or newer, this is {version}"
        return DoctorResult("java", problem, cure, is_fatal=True)
    return DoctorResult(f"java {version}")


def check_open_files(limit: int) -> DoctorResult:
    if limit == resource.RLIM_INFINITY or limit >= OPEN_FILES_MIN:
        return DoctorResult("open files")
    return DoctorResult(
        "open files",
        f"a process may open {limit} files, and each partition takes a few",
        f"ulimit -n {OPEN_FILES_MIN}",
    )


def check_directory(directory: Path) -> DoctorResult:
    """The log's directory, or what it will be made in."""
    what = f"disk of {directory}"
    existing = next(each for each in (directory, *directory.absolute().parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        cure = f"let this user write to {existing}, or name another directory under log.path"
        return DoctorResult(what, f"{existing} cannot be written to", cure, is_fatal=True)
    free = shutil.disk_usage(existing).free
    if free < DISK_BYTES_MIN:
        return DoctorResult(
            what,
            f"{size_text(free)} are free for the log",
            "free some space, or choose another directory by log.path",
            is_fatal=True,
        )
    return DoctorResult(f"{what}, {size_text(free)} free")
