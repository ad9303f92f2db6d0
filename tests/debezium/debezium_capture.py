"""Runs real Debezium over a database, in several of its modes at once, and keeps its events."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo

from scripts.owned_process import start_owned
from tests.compat.java_programs import JAVA, class_path, compile_sources, directory_from

SOURCES = Path(__file__).parent / "java"
API = (
    "debezium-embedded", "debezium-api", "debezium-connector-common", "connect-api", "connect-json",
    "kafka-clients", "jackson-annotations",
)  # fmt: skip
MEMORY = "-Xmx768m"
WAIT_S_MAX = 180
FAILED = "Engine has failed"
PIPELINE, PUBLICATION = "shop", "beside"
MODES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "strings": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "isostring",
        "binary.handling.mode": "hex",
        "interval.handling.mode": "string",
        "hstore.handling.mode": "map",
        "provide.transaction.metadata": "true",
    },
    "doubles": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64",
    },
    "micros": {
        "time.precision.mode": "microseconds",
        "binary.handling.mode": "base64-url-safe",
    },
    "nanos": {"time.precision.mode": "nanoseconds"},
    "adaptive_us": {"time.precision.mode": "adaptive_time_microseconds"},
}
"""Between them every choice that the source has, too."""


def capture(
    address: str,
    directory: Path,
    modes: Mapping[str, Mapping[str, str]],
    history: Callable[[], None],
) -> dict[str, Path]:
    """A file of events per mode, of PostgreSQL; see `capture_with`."""
    jars = directory_from("fetch_debezium.sh", "HEADWATER_DEBEZIUM_JARS")
    properties = {name: _properties(address, name, given) for name, given in modes.items()}

    def waits(engines: Engines) -> None:
        _wait_for_streams(address, engines, len(properties))

    return capture_with(jars, directory, properties, waits, history)


@dataclass(frozen=True, slots=True)
class Engines:
    """The process of Debezium's engines."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def check_alive(self, deadline: float) -> None:
        said = self.log.read_text(errors="replace")
        has_failed = self.process.poll() is not None or FAILED in said
        assert not has_failed and time.monotonic() < deadline, said[-3000:]


def capture_with(
    jars: Path,
    directory: Path,
    properties: Mapping[str, Mapping[str, str]],
    wait_for_streams: Callable[[Engines], None],
    history: Callable[[], None],
) -> dict[str, Path]:
    """A file of events per name of an engine; `history` is called once all of them are streaming,
    and has to end with a row of `zz_end`."""
    classes = directory / "classes"
    classes.mkdir()
    compile_sources(SOURCES, classes, class_path(jars, API))
    files = [_written(directory / f"{name}.properties", each) for name, each in properties.items()]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    command = [*JAVA, MEMORY, quiet, "-cp", f"{jars}/*{os.pathsep}{classes}", "Capture"]
    output = directory / "debezium.log"
    with output.open("wb") as log:
        process = start_owned([*command, *files], stdout=log, stderr=log)
    try:
        wait_for_streams(Engines(process, output))
        history()
        process.wait(WAIT_S_MAX)
    finally:
        process.kill()
        process.wait()
    return {name: Path(f"{file}.events") for name, file in zip(properties, files, strict=True)}


def _written(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def _properties(address: str, name: str, given: Mapping[str, str]) -> dict[str, str]:
    login: dict[str, Any] = dict(conninfo.conninfo_to_dict(address))
    return {
        "name": name,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
        "database.hostname": login["host"],
        "database.port": login["port"],
        "database.user": login["user"],
        "database.password": login.get("password", "none"),
        "database.dbname": login["dbname"],
        "topic.prefix": PIPELINE,
        "plugin.name": "pgoutput",
        "slot.name": f"beside_{name}",
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "initial",
        "skipped.operations": "none",
        "poll.interval.ms": "20",
        **given,
    }


def _wait_for_streams(address: str, engines: Engines, count: int) -> None:
    active = (
        "SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name LIKE 'beside%'"
        " AND confirmed_flush_lsn IS NOT NULL"
    )
    deadline = time.monotonic() + WAIT_S_MAX
    with psycopg.connect(address, autocommit=True) as connection:
        while True:
            [[found]] = connection.execute(active.encode()).fetchall()
            if found == count:
                return
            engines.check_alive(deadline)
            time.sleep(0.1)
