"""The one Spark session of this process, opened when first needed, and the jobs of its users."""

import asyncio
import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

import headwater
from headwater.core_log.client.gather import wait_for_end
from headwater.core_log.foundation.disk_space import disk_full, lacks_room
from headwater.core_log.foundation.errors import ConfigError, Diagnostic, SinkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

JAVA_MIN = 17
JAVA_HINT = "apt install openjdk-17-jre-headless, or let JAVA_HOME say where a newer one is"
HADOOP_SETTINGS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
VERSION = re.compile(r'version "(\d+)')
PACKAGES = ("core_log", "connectors", "sinks", "pipelines", "config")
"""Packages that are sent to executors on other machines, unless they are installed there."""
LOG_PROPERTIES = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %p %c{1}: %m%n
logger.cluster.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.cluster.level = warn
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.loss.name = org.apache.spark.scheduler.TaskSetManager
logger.loss.level = off
logger.tasks.name = org.apache.spark.executor.Executor
logger.tasks.level = off
"""
"""Log levels. Errors of tasks come back as exceptions and are logged once. A cluster that gives no
executor logs only a warning. Spark's `shell` level would lower ours, with two lines about it."""
PROGRESS = "headwater.progress"
"""The logger of progress of long work; commands show it even if they are quiet."""

CANCEL_AGAIN_S, PROGRESS_S = 0.2, 10.0

Result = TypeVar("Result")

progress = logging.getLogger(PROGRESS)

_current = threading.local()


@dataclass(frozen=True, slots=True)
class SessionChoices:
    """The settings of Spark. A process has one Spark, so the first settings count for all its
    users."""

    master: str = "local[*]"
    """`local[N]`, or a cluster: `spark://HOST:PORT`, `yarn`, `k8s://...`."""
    memory_bytes: int = 1 << 30
    """Heap of the driver, which does all the work in local mode."""
    scratch: Path | None = None
    """Directory to which Spark spills; None for the system's directory for temporary files."""
    python: str = ""
    """Interpreter of the executors; empty for this process's own."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings by their own names; they win over ours."""

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def open_session(choices: SessionChoices) -> "SparkSession":
    """Returns the session of this process; opens it if needed.

    Opening takes some seconds: call it in a thread. Raises ConfigError if Java is missing, or if
    Spark already runs with other settings.
    """
    held = _find_held()
    with held.lock:
        if held.session is not None and not _is_alive(held.session):
            _give_up(held.session)
            held.session = None
        if held.session is None:
            _forget_dead_process()
            held.session, held.choices = _start(choices), choices
        elif held.choices != choices:
            raise ConfigError(
                "Spark already runs in this process with other settings",
                hint="give all Spark sinks of the pipeline the same master, memory and config",
                running=_describe(held.choices),
                wanted=_describe(choices),
            )
        return held.session


def close_session() -> None:
    """Stops Spark in this process, for all its users."""
    held = _find_held()
    with held.lock:
        if held.session is not None:
            held.session.stop()
        held.session = held.choices = None


def is_running() -> bool:
    """Whether this process has a Spark already, so that nobody need wait for its start."""
    return _find_held().session is not None


@cache
def warn_without_java() -> None:
    """Warns once in a process, when a lake is opened: Java is not needed while all slices are
    small."""
    if _java() is None:
        logger.warning(
            "Spark needs Java, which is not installed: slices that are too large for this process "
            "will wait; %s",
            JAVA_HINT,
        )


def examine_java() -> Diagnostic | None:
    """Returns why Spark cannot start here, if Java is the reason."""
    java = _java()
    if java is None:
        return Diagnostic("Spark needs Java, which is not installed", JAVA_HINT)
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = VERSION.search(asked.stderr)
    if found is None:
        return Diagnostic(f"{java} does not say which version of Java it is", JAVA_HINT)
    version = int(found[1])
    if version < JAVA_MIN:
        return Diagnostic(f"Spark needs Java {JAVA_MIN} or newer, and this is {version}", JAVA_HINT)
    return None


def examine_yarn(master: str) -> Diagnostic | None:
    """Returns why Spark cannot find the cluster, if it is one of YARN."""
    if master != "yarn" or any(os.environ.get(name) for name in HADOOP_SETTINGS):
        return None
    return Diagnostic(
        "Spark does not know where YARN is, because HADOOP_CONF_DIR is not set",
        "set it to the directory that holds yarn-site.xml",
    )


@dataclass(slots=True)
class _Held:
    lock: threading.Lock = field(default_factory=threading.Lock)
    session: "SparkSession | None" = None
    choices: SessionChoices | None = None


@cache
def _find_held() -> _Held:
    return _Held()


def _is_alive(session: "SparkSession") -> bool:
    """Returns whether the session is usable: not stopped, its process alive, its cluster
    connected."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    context = session.sparkContext
    if context._jsc is None:
        return False
    assert context._gateway is not None, "a context has a gateway"
    process = context._gateway.proc
    if process is not None and process.poll() is not None:
        return False
    try:
        return not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def _give_up(session: "SparkSession") -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with suppress(Py4JError, OSError), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it cannot be stopped cleanly
        session.stop()
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SparkContext._active_spark_context = None


def _forget_dead_process() -> None:
    """Forgets a Spark process that has died.

    PySpark never forgets it and would use it for every next session. A process that was just killed
    may fail a moment before it counts as dead: the next attempt comes here too.
    """
    from pyspark import SparkContext

    process = SparkContext._gateway.proc if SparkContext._gateway is not None else None
    if process is not None and process.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = None
        logger.warning("the Spark process has ended unexpectedly; a new one is started")


def _describe(choices: SessionChoices | None) -> str:
    return "" if choices is None else f"{choices.master}, {choices.memory_bytes >> 20} MiB"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def _start(choices: SessionChoices) -> "SparkSession":
    finding = examine_java() or examine_yarn(choices.master)
    if finding is not None:
        raise ConfigError(finding.problem, hint=finding.hint)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = Path(tempfile.mkdtemp(prefix="headwater-spark-", dir=choices.scratch))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    # Without it the workers take the first `python3` of their path.
    os.environ["PYSPARK_PYTHON"] = choices.python or sys.executable
    builder = SparkSession.builder.master(choices.master).appName("headwater")
    for name, value in (_settings(choices, place) | dict(choices.config)).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        if lacks_room(error):
            raise disk_full(error, place) from error
        raise SinkUnavailable(
            "Spark cannot start", master=choices.master, kind=type(error).__name__
        ) from error
    if not choices.is_local:
        session.sparkContext.addPyFile(str(_pack(place)))
    return session


def _settings(choices: SessionChoices, place: Path) -> dict[str, str]:
    logging = place / "log4j2.properties"
    logging.write_text(LOG_PROPERTIES)
    found = {
        "spark.driver.memory": f"{choices.memory_bytes >> 20}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{logging}",
        "spark.local.dir": str(place),
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Timestamps are UTC; the machine's time zone has no influence.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.scheduler.mode": "FAIR",
        # Adaptive execution is off: it has nothing to decide here, and makes a job of each step.
        "spark.sql.adaptive.enabled": "false",
        # One Spark row is a chunk of many rows.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    }
    if choices.is_local:
        cores = os.cpu_count() or 1
        found |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(2 * cores),
            "spark.shuffle.compress": "false",
        }
    return found


def _pack(place: Path) -> Path:
    """Returns our package as one file that executors can import."""
    root = Path(headwater.__file__).parent
    packed = place / "headwater.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(root / "__init__.py", "headwater/__init__.py")
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                archive.write(path, path.relative_to(root.parent))
    return packed


class JobGroup:
    """Spark jobs that a thread starts for one piece of work. Its next job is cancelled too."""

    def __init__(self) -> None:
        self._name = f"headwater-{uuid4().hex}"
        self._session: SparkSession | None = None
        self._is_cancelled = False

    def run(self, work: Callable[[], Result]) -> Result:
        """Runs the work in the calling thread."""
        _current.group = self
        try:
            return work()
        finally:
            _current.group = None

    def join(self, session: "SparkSession") -> None:
        """Makes further jobs of this thread part of this group."""
        self._session = session
        session.sparkContext.setJobGroup(self._name, "headwater", interruptOnCancel=True)
        if self._is_cancelled:
            raise JobsCancelled

    def describe_progress(self) -> str:
        """Returns the progress of the stages that run now; empty if none runs."""
        if self._session is None:
            return ""
        from py4j.protocol import Py4JError

        tracker = self._session.sparkContext.statusTracker()
        done = total = 0
        with suppress(Py4JError, OSError):
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self._name))
            for stage in {id for job in jobs if job is not None for id in job.stageIds}:
                if (found := tracker.getStageInfo(stage)) is not None and found.numActiveTasks:
                    done, total = done + found.numCompletedTasks, total + found.numTasks
        return f"Spark has done {done:,} of {total:,} tasks" if total else ""

    def cancel(self) -> None:
        """Cancels running jobs. Call it until the work has ended: a job that starts later is
        missed."""
        self._is_cancelled = True
        if self._session is None:
            return
        from py4j.protocol import Py4JError

        with suppress(Py4JError, OSError):  # Spark may be stopping, too
            self._session.sparkContext.cancelJobGroup(self._name)


class JobsCancelled(Exception):
    """The work was cancelled before its first Spark job."""


def join_current(session: "SparkSession") -> "SparkSession":
    """Adds jobs of this thread to the group of the work that opens a session."""
    group = getattr(_current, "group", None)
    if group is not None:
        group.join(session)
    return session


async def in_thread(work: Callable[[], Result]) -> Result:
    """Waits for the thread even when cancelled, so that no write goes on behind our back; what it
    has Spark do is cancelled, and done again by the next start."""
    loop, group = asyncio.get_running_loop(), JobGroup()
    began_s = loop.time()
    running = loop.run_in_executor(None, partial(group.run, work))
    try:
        while not (await asyncio.wait([running], timeout=PROGRESS_S))[0]:
            if message := await loop.run_in_executor(None, group.describe_progress):
                progress.info("%s, after %.0f s", message, loop.time() - began_s)
        return running.result()
    except asyncio.CancelledError:

        async def cancel() -> None:
            while not running.done():
                await loop.run_in_executor(None, group.cancel)
                await asyncio.wait([running], timeout=CANCEL_AGAIN_S)

        try:
            await wait_for_end(asyncio.ensure_future(cancel()))
        finally:
            running.exception()  # nobody is left to be told of it
        raise
