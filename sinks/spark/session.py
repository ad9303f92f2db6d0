"""One Spark session for everything that this process does with Spark, opened when first needed."""

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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import headwater
from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import ConfigError, SinkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

JAVA_MIN = 17
JAVA_HINT = "apt install openjdk-17-jre-headless, or let JAVA_HOME say where a newer one is"
VERSION = re.compile(r'version "(\d+)')
PACKAGES = ("core_log", "connectors", "sinks", "pipelines", "config")
"""What executors on other machines are sent, unless they have it installed."""
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
"""What a task fails with comes back as an exception, and is told once. A cluster that gives us no
executor says so as a warning, and else nothing would. The level of the `shell` is
what Spark would else lower ours to, with two lines about it."""


@dataclass(frozen=True, slots=True)
class SessionChoices:
    """How Spark runs. A process has one Spark, so the first choices count for all who share it."""

    master: str = "local[*]"
    """`local[N]`, or a cluster: `spark://HOST:PORT`, `yarn`, `k8s://...`."""
    memory_bytes: int = 1 << 30
    """Heap of the driver, which in local mode does all the work."""
    scratch: Path | None = None
    """Where Spark spills; None for the system's own place for such files."""
    python: str = ""
    """Interpreter of the executors; empty for this process's own."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings by their own names; they win over ours."""

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")


def open_session(choices: SessionChoices) -> "SparkSession":
    """The session of this process. Takes some seconds the first time: call it beside the loop.

    Raises ConfigError where Java is missing, or Spark already runs by other choices.
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
                "Spark already runs in this process, by other settings",
                hint="give all Spark sinks of the pipeline the same master, memory and config",
                running=_describe(held.choices),
                wanted=_describe(choices),
            )
        return held.session


def close_session() -> None:
    """Ends Spark in this process, whoever uses it."""
    held = _find_held()
    with held.lock:
        if held.session is not None:
            held.session.stop()
        held.session = held.choices = None


@cache
def warn_without_java() -> None:
    """Once in a process, when a lake is met. As long as all slices are small none is missed."""
    if _java() is None:
        logger.warning(
            "Spark needs Java, and there is none: what is too large for this process will have to"
            " wait; %s",
            JAVA_HINT,
        )


def examine_java() -> Diagnostic | None:
    """Why Spark could not start here, where the reason is Java."""
    java = _java()
    if java is None:
        return Diagnostic("Spark needs Java, and there is none", JAVA_HINT)
    asked = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = VERSION.search(asked.stderr)
    if found is None:
        return Diagnostic(f"{java} does not say which version of Java it is", JAVA_HINT)
    version = int(found[1])
    if version < JAVA_MIN:
        return Diagnostic(f"Spark needs Java {JAVA_MIN} or newer, and this is {version}", JAVA_HINT)
    return None


@dataclass(slots=True)
class _Held:
    lock: threading.Lock = field(default_factory=threading.Lock)
    session: "SparkSession | None" = None
    choices: SessionChoices | None = None


@cache
def _find_held() -> _Held:
    return _Held()


def _is_alive(session: "SparkSession") -> bool:
    """Not once somebody has stopped it, its process has died, or a cluster has let it go."""
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
    """PySpark never lets go of a process that has died, and would ask it for every next session.
    One that was just killed may answer no more a moment before it counts as dead: the next attempt
    comes by here, too."""
    from pyspark import SparkContext

    process = SparkContext._gateway.proc if SparkContext._gateway is not None else None
    if process is not None and process.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = None
        logger.warning("Spark's process has ended by itself; another one is started")


def _describe(choices: SessionChoices | None) -> str:
    return "" if choices is None else f"{choices.master}, {choices.memory_bytes >> 20} MiB"


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    return shutil.which("java")


def _start(choices: SessionChoices) -> "SparkSession":
    finding = examine_java()
    if finding is not None:
        raise ConfigError(finding.problem, hint=finding.cure)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    place = Path(tempfile.mkdtemp(prefix="headwater-spark-", dir=choices.scratch))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    # Without it the workers take whatever `python3` the path holds.
    os.environ["PYSPARK_PYTHON"] = choices.python or sys.executable
    builder = SparkSession.builder.master(choices.master).appName("headwater")
    for name, value in (_settings(choices, place) | dict(choices.config)).items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise SinkUnavailable(
            "Spark does not start", master=choices.master, kind=type(error).__name__
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
        # Moments are moments: no time zone of a machine has a say in them.
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.scheduler.mode": "FAIR",
        # There is nothing to decide anew after a step, and each would become a job of its own.
        "spark.sql.adaptive.enabled": "false",
        # A row of ours is a parcel of many rows.
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
    """Our package as one file that executors can import from."""
    root = Path(headwater.__file__).parent
    packed = place / "headwater.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(root / "__init__.py", "headwater/__init__.py")
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                archive.write(path, path.relative_to(root.parent))
    return packed
