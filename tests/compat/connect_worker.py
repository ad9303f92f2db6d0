"""A worker of Kafka Connect 4.3 that copies a file into a topic, and that into another file."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.compat.java_programs import JAVA, class_path, client_jars, kafka_jars

LINES = [f"line {number}" for number in range(500)]
WAIT_S_MAX = 120
STRINGS = "org.apache.kafka.connect.storage.StringConverter"
WORKER = {
    "key.converter": STRINGS,
    "value.converter": STRINGS,
    "offset.flush.interval.ms": "300",
    "plugin.discovery": "service_load",
}
SOURCE = {
    "name": "from-file",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "topic": "lines",
    "tasks.max": "1",
}
SINK = {
    "name": "to-file",
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "topics": "lines",
    "tasks.max": "1",
    "consumer.override.isolation.level": "read_committed",
}
STORES = {"config": "settings", "offset": "offsets", "status": "states"}
DISTRIBUTED = {
    "group.id": "workers",
    "exactly.once.source.support": "enabled",
    "heartbeat.interval.ms": "500",
    **{f"{kind}.storage.topic": topic for kind, topic in STORES.items()},
    **{f"{kind}.storage.replication.factor": "1" for kind in STORES},
    "offset.storage.partitions": "2",
    "status.storage.partitions": "1",
}


class ConnectWorker:
    def __init__(self, directory: Path, bootstrap: str) -> None:
        self._directory, self._log = directory, directory / "worker.log"
        self.url = f"http://127.0.0.1:{free_port()}"
        self._settings = WORKER | {"bootstrap.servers": bootstrap, "listeners": self.url}
        self._source, self._sink = directory / "in.txt", directory / "out.txt"
        self._source.write_text("\n".join(LINES) + "\n")
        self._connectors = [
            SOURCE | {"file": str(self._source)},
            SINK | {"file": str(self._sink)},
        ]

    @contextmanager
    def standalone(self) -> Iterator[None]:
        files = {"offset.storage.file.filename": str(self._directory / "offsets")}
        with self._running("Standalone", self._settings | files, *self._connectors):
            yield

    @contextmanager
    def distributed(self) -> Iterator[None]:
        with self._running("Distributed", self._settings | DISTRIBUTED):
            yield

    @contextmanager
    def _running(self, kind: str, *settings: dict[str, str]) -> Iterator[None]:
        """The wheel lacks a part of Jetty, so the worker is Apache Kafka's; the connectors are
        not."""
        files = []
        for each in settings:
            file = self._directory / f"{each.get('name', 'worker')}.properties"
            file.write_text("".join(f"{key}={value}\n" for key, value in each.items()))
            files.append(str(file))
        path = f"{kafka_jars()}/*{os.pathsep}{class_path(client_jars(), ('connect-file',))}"
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = f"org.apache.kafka.connect.cli.Connect{kind}"
        with self._log.open("ab") as output:
            command = [*JAVA, quiet, "-cp", path, main, *files]
            process = start_owned(command, stdout=output, stderr=output)
        try:
            yield
            assert process.poll() is None, self._last_words()
        finally:
            process.kill()
            process.wait()

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def create_connectors(self) -> None:
        """Until all lines are copied."""
        self.wait_until(self._is_ready)
        for each in self._connectors:
            self.call("POST", "/connectors", {"name": each["name"], "config": each})
        self.wait_until(lambda: len(self.lines()) >= len(LINES))

    def _is_ready(self) -> bool:
        with suppress(URLError, OSError):
            return isinstance(self.call("GET", "/connectors"), list)
        return False

    def call(self, method: str, path: str, body: object = None) -> object:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(self.url + path, content, headers, method=method)
        with urlopen(request, timeout=30) as response:
            return json.load(response)

    def append(self, line: str) -> None:
        with self._source.open("a") as more:
            more.write(line + "\n")

    def lines(self) -> list[str]:
        return self._sink.read_text().splitlines() if self._sink.exists() else []

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not condition():
            assert time.monotonic() < deadline, f"this never came about: {self._last_words()}"
            time.sleep(0.1)
