"""Kafka Connect 4.3 works on this broker: a file in, a topic, a file out; alone and distributed."""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.compat.java_programs import JAVA, class_path, client_jars, kafka_jars
from tests.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.compat, pytest.mark.kafka]

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


@pytest.fixture
def path() -> str:
    """The wheel lacks a part of Jetty, so the worker is Apache Kafka's; the connectors are not."""
    kafka = kafka_jars()
    return f"{kafka}/*{os.pathsep}{class_path(client_jars(), ('connect-file',))}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data", tmp_path / "broker.log", {"internal_partitions": "2"}
    )
    process.start()
    yield process
    process.stop()


def properties(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return str(path)


@contextmanager
def worker(directory: Path, path: str, kind: str, *files: str) -> Iterator[None]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    main = f"org.apache.kafka.connect.cli.Connect{kind}"
    with (directory / "worker.log").open("ab") as output:
        command = [*JAVA, quiet, "-cp", path, main, *files]
        process = start_owned(command, stdout=output, stderr=output)
    try:
        yield
        assert process.poll() is None, said(directory)
    finally:
        process.kill()
        process.wait()


def said(directory: Path) -> str:
    return (directory / "worker.log").read_text(errors="replace")[-3000:]


def eventually(directory: Path, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, f"this never came about: {said(directory)}"
        time.sleep(0.1)


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_file_passes_through_a_topic_into_another_file(
    broker: BrokerProcess, path: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n")
    settings = WORKER | {
        "bootstrap.servers": broker.address,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "offset.storage.file.filename": str(tmp_path / "offsets"),
    }
    files = (
        properties(tmp_path / "worker.properties", settings),
        properties(tmp_path / "source.properties", SOURCE | {"file": str(source)}),
        properties(tmp_path / "sink.properties", SINK | {"file": str(sink)}),
    )

    with worker(tmp_path, path, "Standalone", *files):
        eventually(tmp_path, lambda: len(lines_of(sink)) >= len(LINES))
        with source.open("a") as more:
            more.write("one more\n")
        eventually(tmp_path, lambda: len(lines_of(sink)) > len(LINES))

    assert lines_of(sink) == [*LINES, "one more"]


def call(method: str, url: str, body: object = None) -> object:
    content = None if body is None else json.dumps(body).encode()
    request = Request(url, content, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=30) as response:
        return json.load(response)


def test_a_distributed_worker_keeps_its_state_in_compacted_topics_and_goes_on_after_a_kill(
    broker: BrokerProcess, path: str, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("\n".join(LINES) + "\n")
    url = f"http://127.0.0.1:{free_port()}"
    settings = WORKER | DISTRIBUTED | {"bootstrap.servers": broker.address, "listeners": url}
    file = properties(tmp_path / "worker.properties", settings)

    def is_ready() -> bool:
        with suppress(URLError, OSError):
            return isinstance(call("GET", f"{url}/connectors"), list)
        return False

    with worker(tmp_path, path, "Distributed", file):
        eventually(tmp_path, is_ready)
        for each, where in ((SOURCE, source), (SINK, sink)):
            config = each | {"file": str(where)}
            call("POST", f"{url}/connectors", {"name": each["name"], "config": config})
        eventually(tmp_path, lambda: len(lines_of(sink)) >= len(LINES))
    broker.kill()
    broker.forget()
    broker.start()
    with source.open("a") as more:
        more.write("one more\n")
    with worker(tmp_path, path, "Distributed", file):
        eventually(tmp_path, lambda: "one more" in lines_of(sink))

    assert sorted(set(lines_of(sink))) == sorted([*LINES, "one more"])
