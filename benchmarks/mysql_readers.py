"""Who reads the same history of MySQL in turn: a socket, Debezium's engine, and Headwater."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures
from benchmarks.mysql_history import DATABASE, Database
from benchmarks.pipelines import ENVIRONMENT, wait_for
from benchmarks.postgres_history import TABLE, TICKS
from benchmarks.postgres_readers import (
    API,
    JAVA_MEMORY,
    JAVA_SOURCES,
    LARGE_BATCHES,
    PATIENCE_S,
    ROOT,
    arrivals_of,
    consumer_of,
    first_of,
)
from benchmarks.processes import PeakMemory, cpu_s
from tests.compat.java_programs import class_path, compile_sources

RECEIVE_BYTES = 1 << 20
DUMP_GTID, NON_BLOCKING = 0x1E, 1
QUERY = 3
END_BYTES, END = 5, 0xFE
EMPTY_SET = (8).to_bytes(4, "little") + bytes(8)


def receive(database: Database, rows: int, gtids: str) -> Figures:
    """A socket that throws away what the server sends of its binary log."""
    from headwater.connectors.mysql.server.gtid_set import GtidSet

    connection: Any = database.server.connect()
    with connection.cursor() as cursor:
        cursor.execute("SET @source_binlog_checksum = 'CRC32'")
    known = GtidSet.parse(gtids).encode()
    head = (
        NON_BLOCKING.to_bytes(2, "little") + (0).to_bytes(4, "little") + (0).to_bytes(4, "little")
    )
    place = (4).to_bytes(8, "little") + len(known).to_bytes(4, "little")
    return _thrown_away(connection, DUMP_GTID, head + place + known, rows)


def select(database: Database, rows: int, *, parts: int) -> Figures:
    """Sockets that throw away the rows of a SELECT."""
    found, begun = list[Figures](), time.perf_counter()

    def read(part: int) -> None:
        begin, end = part * rows // parts, (part + 1) * rows // parts
        question = f"SELECT * FROM {DATABASE}.{TABLE} WHERE id > {begin} AND id <= {end}"
        connection = database.server.connect()
        found.append(_thrown_away(connection, QUERY, question.encode(), rows))

    threads = [threading.Thread(target=read, args=(part,)) for part in range(parts)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
    assert len(found) == parts, "every part was read"
    seconds = time.perf_counter() - begun
    return {"per_second": rows / seconds, "seconds": seconds}


def _thrown_away(connection: Any, command: int, data: bytes, rows: int) -> Figures:
    begun, socket = time.perf_counter(), connection._sock
    socket.sendall((len(data) + 1).to_bytes(3, "little") + bytes([0, command]) + data)
    room, tail = bytearray(RECEIVE_BYTES), b""
    while not (len(tail) >= END_BYTES and tail[-END_BYTES] == END):
        count = socket.recv_into(room)
        assert count, "the server goes on to the end"
        tail = (tail + bytes(room[max(0, count - END_BYTES) : count]))[-END_BYTES:]
    seconds = time.perf_counter() - begun
    connection._force_close()
    return {"per_second": rows / seconds, "seconds": seconds}


@dataclass(slots=True)
class Debezium:
    """The engine alone: its events go nowhere, while ours go to disk and are acknowledged."""

    jars: Path
    directory: Path
    database: Database
    runs: int = 0

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
        process = self._started(rows, {"snapshot.mode": "initial_only", **LARGE_BATCHES})
        return self._figures(process, rows, 0)

    def start(self) -> Figures:
        """From the start of the JVM to the first event of a table with one row."""
        process = self._started(1, {"snapshot.mode": "initial_only"})
        return {"seconds": self._figures(process, 1, 0)["first_ms"] / 1e3}

    def catch_up(self, rows: int, history: Callable[[], None]) -> Figures:
        """It is stopped while the history is written, and goes on with all of it before it."""
        process = self._started(rows, {"snapshot.mode": "no_data", **LARGE_BATCHES})
        self.database.wait_for_readers(1)
        time.sleep(1)  # it has read its own first position
        process.send_signal(signal.SIGSTOP)
        history()
        used = cpu_s(process.pid)
        process.send_signal(signal.SIGCONT)
        return self._figures(process, rows, used)

    @contextmanager
    def following(
        self, count: int, more: Mapping[str, str]
    ) -> Iterator[Callable[[], dict[int, int]]]:
        """The arrival of each tick in microseconds, once all have come."""
        given = {
            "snapshot.mode": "no_data", "table.include.list": f"{DATABASE}.{TICKS}", **more,
        }  # fmt: skip
        process = self._started(count, given, "timed")
        try:
            self.database.wait_for_readers(1)
            time.sleep(1)
            yield lambda: arrivals_of(process, PATIENCE_S)
        finally:
            process.kill()
            process.wait()

    def _figures(self, process: "subprocess.Popen[str]", rows: int, before: float) -> Figures:
        with PeakMemory(process.pid).watching() as peak:
            said = process.communicate(timeout=PATIENCE_S)[0]
        assert process.returncode == 0, "Debezium's engine came to the last event"
        found = json.loads(said.splitlines()[-1])
        seconds = max(1, found["last_ms"] - found["first_ms"]) / 1e3
        return {
            "per_second": rows / seconds,
            "seconds": seconds,
            "first_ms": found["first_ms"],
            "pss_mb": peak.mb,
            "cpu_s_per_million": (peak.cpu_s - before) / rows * 1e6,
        }

    def _started(
        self, rows: int, more: Mapping[str, str], *options: str
    ) -> "subprocess.Popen[str]":
        self.runs += 1
        settings = {
            "name": "bench",
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
            "database.hostname": "127.0.0.1",
            "database.port": self.database.server.port,
            "database.user": "debezium",
            "database.password": "secret",
            "database.ssl.mode": "disabled",
            "driver.allowPublicKeyRetrieval": "true",  # the password goes without TLS
            "database.server.id": 6_000 + self.runs,
            "topic.prefix": "bench",
            "table.include.list": f"{DATABASE}.{TABLE}",
            "include.schema.changes": "false",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "decimal.handling.mode": "string",
            **more,
        }
        path = self.directory / "debezium.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        silent = f"-Djava.util.logging.config.file={os.devnull}"
        classes = f"{self.jars}/*{os.pathsep}{self.directory / 'classes'}"
        command = [
            "java",
            JAVA_MEMORY,
            quiet,
            silent,
            "-cp",
            classes,
            "Measure",
            path,
            rows,
            *options,
        ]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)


@dataclass(slots=True)
class Headwater:
    """The source's task alone in a process, over a broker in another, which syncs to disk."""

    directory: Path
    database: Database
    bootstrap: str
    files: int = 0

    def snapshot(self, rows: int, *, parallel: int, speed: str = "fast") -> Figures:
        path = self._pipeline(f"snapshot: {{parallel: {parallel}}}")
        return self._measured(path, rows, speed)

    def before_history(self) -> Path:
        """A pipeline that has stored where the binary log ends."""
        path = self._pipeline("snapshot: {mode: never}")
        self._measured(path, 0, "fast")
        return path

    def catch_up(self, path: Path, rows: int, *, speed: str = "fast") -> Figures:
        return self._measured(path, rows, speed)

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
            self.database.wait_for_readers(1)
            taking = threading.Thread(target=take, args=(consumer,), daemon=True)
            taking.start()

            def arrivals() -> dict[int, int]:
                taking.join(PATIENCE_S)
                return arrived

            yield arrivals

    @contextmanager
    def _running(self, table: str, name: str) -> Iterator[tuple[float, Any]]:
        """`headwater run` as users start it, and a consumer of the table's topic."""
        directory = self.directory / name
        directory.mkdir()
        (directory / "pipeline.yaml").write_text(
            f"pipeline: {name}\nsource: {self._source(table, 'snapshot: {}')}\n"
            "sink: {type: files, path: lake}\n"
        )
        command = [sys.executable, "-m", "headwater.pipelines.cli", "run", "--quiet"]
        begun = time.time()
        process = subprocess.Popen(command, cwd=directory, env=ENVIRONMENT)
        try:
            endpoint = directory / "data" / "endpoint.json"
            wait_for(endpoint.exists)
            address = json.loads(endpoint.read_text())["kafka"]
            consumer = consumer_of(address, f"{name}.{DATABASE}.{table}")
            yield begun, consumer
            consumer.close()
        finally:
            process.terminate()
            process.wait(PATIENCE_S)

    def _source(self, table: str, more: str) -> str:
        return (
            f"{{type: mysql, url: '{self.database.address}', tables: [{DATABASE}.{table}],"
            f" tls: {{mode: disabled}}, {more}}}"
        )

    def _pipeline(self, more: str) -> Path:
        self.files += 1
        path = self.directory / f"task{self.files}.yaml"
        path.write_text(
            f"pipeline: task{self.files}\n"
            f"source: {self._source(TABLE, more)}\n"
            "sink: {type: console}\n"
            f"log: {{type: kafka, bootstrap: '{self.bootstrap}'}}\n"
        )
        return path

    def _measured(self, path: Path, rows: int, speed: str) -> Figures:
        command = [sys.executable, "-m", "benchmarks.pipeline_task", str(path), "source"]
        environment = {**ENVIRONMENT, "HEADWATER_SPEED": speed}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        with PeakMemory(process.pid).watching() as peak:
            said = process.communicate(timeout=PATIENCE_S)[0]
        found: Figures = json.loads(said)
        assert found["rows"] == rows, f"{rows} rows were there and {found['rows']} were read"
        return {
            **found, "pss_mb": peak.mb,
            "cpu_s_per_million": found["task_cpu_s"] / max(rows, 1) * 1e6,
        }  # fmt: skip
