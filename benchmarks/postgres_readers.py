"""Who reads the same history in turn: PostgreSQL's own tools, Debezium's engine, and Headwater."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import psycopg

from benchmarks.figures import Figures
from benchmarks.pipelines import ENVIRONMENT, wait_for
from benchmarks.postgres_history import PUBLICATION, TABLE, TICKS, Database
from benchmarks.processes import PeakMemory, ended_children_s
from tests.compat.java_programs import class_path, compile_sources

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S, LOOK_S = 900, 0.02
JAVA_SOURCES = Path(__file__).parent / "java"
JAVA_MEMORY = "-Xmx2g"
API = (
    "debezium-embedded",
    "debezium-api",
    "debezium-connector-common",
    "kafka-clients",
    "connect-api",
)
LARGE_BATCHES = {
    "max.batch.size": "8192",
    "max.queue.size": "32768",
    "snapshot.fetch.size": "10240",
}
"""Debezium's defaults are for small ones, and slower."""


def receive(database: Database, slot: str, rows: int) -> Figures:
    """pg_recvlogical, which only takes what the server sends."""
    end = database.value("SELECT pg_current_wal_lsn()")
    command = [database.home / "pg_recvlogical", "-d", database.address, "--slot", slot, "--start",
               "-f", "-", "--no-loop", "--endpos", str(end), "-o", "proto_version=1",
               "-o", f"publication_names={PUBLICATION}"]  # fmt: skip
    begun = time.perf_counter()
    # It ends at the first message at or behind the end: one is needed there.
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    process.wait(PATIENCE_S)
    seconds = time.perf_counter() - begun
    return {"per_second": rows / seconds, "seconds": seconds}


def copy(database: Database, rows: int, *, parts: int) -> Figures:
    """psql, which throws away what COPY sends."""
    pages = database.value(f"SELECT pg_relation_size('{TABLE}') / 8192") // parts + 1
    begun = time.perf_counter()
    running = [
        subprocess.Popen(
            [database.home / "psql", database.address, "-qc",
             f"COPY (SELECT * FROM {TABLE} WHERE ctid >= '({part * pages},0)'"
             f" AND ctid < '({(part + 1) * pages},0)') TO STDOUT"],
            stdout=subprocess.DEVNULL,
        )
        for part in range(parts)
    ]  # fmt: skip
    for each in running:
        each.wait(PATIENCE_S)
    seconds = time.perf_counter() - begun
    return {"per_second": rows / seconds, "seconds": seconds}


@dataclass(frozen=True, slots=True)
class Debezium:
    """The engine alone: its events go nowhere, while ours go to disk and are acknowledged."""

    jars: Path
    directory: Path
    database: Database

    @classmethod
    def made(cls, directory: Path, database: Database) -> "Debezium":
        found = subprocess.run(
            [ROOT / "scripts/fetch_debezium.sh"], capture_output=True, text=True, check=True
        )
        jars = Path(found.stdout.strip())
        (directory / "classes").mkdir()
        compile_sources(JAVA_SOURCES, directory / "classes", class_path(jars, API))
        return cls(jars, directory, database)

    def snapshot(self, rows: int) -> Figures:
        return self._measured(
            rows, {"snapshot.mode": "initial_only", "slot.name": "dbz_snapshot", **LARGE_BATCHES}
        )

    def catch_up(self, slot: str, rows: int) -> Figures:
        more = {"snapshot.mode": "no_data", "slot.name": slot, **LARGE_BATCHES}
        return self._measured(rows, more)

    def start(self) -> Figures:
        """From the start of the JVM to the first event of a table with one row."""
        more = {"snapshot.mode": "initial_only", "slot.name": "dbz_start"}
        return {"seconds": self._measured(1, more)["first_ms"] / 1e3}

    @contextmanager
    def following(
        self, count: int, more: Mapping[str, str]
    ) -> Iterator[Callable[[], dict[int, int]]]:
        """The arrival of each tick in microseconds, once all have come."""
        given = {
            "snapshot.mode": "no_data", "slot.name": "dbz_ticks",
            "table.include.list": f"public.{TICKS}", **more,
        }  # fmt: skip
        process = self._started(count, given, "timed")
        try:
            self.database.wait_for_reader("dbz_ticks")
            yield lambda: arrivals_of(process, PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            self.database.drop("dbz_ticks")

    def _measured(self, rows: int, more: Mapping[str, str]) -> Figures:
        process = self._started(rows, more)
        before = ended_children_s()
        with PeakMemory(process.pid).watching() as peak:
            said = process.communicate(timeout=PATIENCE_S)[0]
        used = ended_children_s() - before
        self.database.drop(more["slot.name"])
        found = json.loads(said.splitlines()[-1])
        seconds = max(1, found["last_ms"] - found["first_ms"]) / 1e3
        return {
            "per_second": rows / seconds,
            "seconds": seconds,
            "first_ms": found["first_ms"],
            "pss_mb": peak.mb,
            "cpu_s_per_million": used / rows * 1e6,
        }

    def _started(
        self, rows: int, more: Mapping[str, str], *options: str
    ) -> "subprocess.Popen[str]":
        login: dict[str, Any] = dict(psycopg.conninfo.conninfo_to_dict(self.database.address))
        settings = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "database.hostname": login["host"],
            "database.port": login["port"],
            "database.user": login["user"],
            "database.password": "none",
            "database.dbname": login["dbname"],
            "topic.prefix": "bench",
            "plugin.name": "pgoutput",
            "publication.name": PUBLICATION,
            "publication.autocreate.mode": "disabled",
            "table.include.list": f"public.{TABLE}",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "decimal.handling.mode": "string",
            **more,
        }
        path = self.directory / "debezium.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        classes = f"{self.jars}/*{os.pathsep}{self.directory / 'classes'}"
        command = ["java", JAVA_MEMORY, quiet, "-cp", classes, "Measure", path, str(rows), *options]
        return subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )


@dataclass(slots=True)
class Headwater:
    """The source's task alone in a process, over a broker in another, which syncs to disk."""

    directory: Path
    database: Database
    bootstrap: str
    files: int = 0

    def snapshot(self, rows: int, *, parallel: int, speed: str = "fast") -> Figures:
        more = f"snapshot: {{mode: initial_only, parallel: {parallel}}}"
        return self._measured(rows, more, speed)

    def catch_up(self, slot: str, rows: int, *, speed: str = "fast") -> Figures:
        more = f"snapshot: {{mode: never}}, slot: {{name: {slot}}}"
        return self._measured(rows, more, speed)

    def start(self) -> Figures:
        """From the command, with everything new, to the append of the first row of the table."""
        with self._running(TABLE, "start") as (begun, consumer):
            message = first_of(consumer)
            return {"seconds": message.timestamp()[1] / 1e3 - begun}

    @contextmanager
    def following(self, count: int) -> Iterator[Callable[[], dict[int, int]]]:
        """The arrival of each tick in microseconds, taken while they come."""
        arrived = dict[int, int]()

        def take(consumer: Any) -> None:
            while len(arrived) < count:
                message = first_of(consumer)
                if number := int(json.loads(message.key())["id"]):
                    arrived[number] = time.time_ns() // 1_000

        with self._running(TICKS, "ticks") as (_, consumer):
            self.database.wait_for_reader("headwater_ticks")
            taking = threading.Thread(target=take, args=(consumer,), daemon=True)
            taking.start()

            def arrivals() -> dict[int, int]:
                taking.join(PATIENCE_S)
                return arrived

            yield arrivals
        self.database.drop("headwater_ticks")

    @contextmanager
    def _running(self, table: str, name: str) -> Iterator[tuple[float, Any]]:
        """`headwater run` as users start it, and a consumer of the table's topic."""
        directory = self.directory / name
        directory.mkdir()
        (directory / "pipeline.yaml").write_text(
            f"pipeline: {name}\nsource: {source_of(self.database, table, 'snapshot: {}')}\n"
            "sink: {type: files, path: lake}\n"
        )
        command = [sys.executable, "-m", "headwater.pipelines.cli", "run", "--quiet"]
        begun = time.time()
        process = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT)
        try:
            endpoint = directory / "data" / "endpoint.json"
            wait_for(endpoint.exists)
            address = json.loads(endpoint.read_text())["kafka"]
            consumer = consumer_of(address, f"{name}.public.{table}")
            yield begun, consumer
            consumer.close()
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
            self.database.drop(f"headwater_{name}")

    def _measured(self, rows: int, more: str, speed: str) -> Figures:
        self.files += 1
        path = self.directory / f"task{self.files}.yaml"
        path.write_text(
            f"pipeline: task{self.files}\n"
            f"source: {source_of(self.database, TABLE, more)}\n"
            "sink: {type: console}\n"
            f"log: {{type: kafka, bootstrap: '{self.bootstrap}'}}\n"
        )
        command = [sys.executable, "-m", "benchmarks.pipeline_task", str(path), "source"]
        environment = {**ENVIRONMENT, "HEADWATER_SPEED": speed}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        with PeakMemory(process.pid).watching() as peak:
            said = process.communicate(timeout=PATIENCE_S)[0]
        found: Figures = json.loads(said)
        assert found["rows"] == rows, f"{rows} rows were there and {found['rows']} were read"
        return {
            **found, "pss_mb": peak.mb,
            "cpu_s_per_million": found["task_cpu_s"] / rows * 1e6,
        }  # fmt: skip


def consumer_of(address: str, topic: str) -> Any:
    """Anybody's: librdkafka, which sees committed records only."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "bootstrap.servers": address, "group.id": "bench", "isolation.level": "read_committed",
        "enable.auto.commit": False, "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = Consumer(settings)
    # Only this one and now and then: answering costs the process that is measured.
    while consumer.list_topics(topic, timeout=5).topics[topic].error is not None:
        time.sleep(LOOK_S)
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer


def first_of(consumer: Any) -> Any:
    while True:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            return message


def source_of(database: Database, table: str, more: str) -> str:
    publication = f"{{name: {PUBLICATION}, create: never}}"
    return (
        f"{{type: postgres, url: '{database.address}', tables: [public.{table}],"
        f" publication: {publication}, {more}}}"
    )


def arrivals_of(process: "subprocess.Popen[str]", patience_s: float) -> dict[int, int]:
    said: IO[str] | None = process.stdout
    assert said is not None, "its output was asked for"
    lines = process.communicate(timeout=patience_s)[0].splitlines()[:-1]
    pairs = (line.split("\t") for line in lines)
    return {int(json.loads(key)["id"]): int(at_us) for key, at_us in pairs}
