"""The console's /connect answers as a real worker of Kafka Connect 4.3 does."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from scripts.free_port import free_port
from tests.compat.test_kafka_connect import (
    DISTRIBUTED,
    LINES,
    SINK,
    SOURCE,
    WORKER,
    call,
    eventually,
    lines_of,
    path,
    properties,
    worker,
)
from tests.crash.broker_process import BrokerProcess
from tests.pipelines.console.connect_requests import ACTS, FIXTURE, LOOKS, ConnectRequest, form_of

pytestmark = [pytest.mark.compat, pytest.mark.kafka]

__all__ = ["path"]
NAMES = {SOURCE["name"]: "SOURCE", SINK["name"]: "SINK"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path / "data", tmp_path / "broker.log", {"internal_partitions": "2"}
    )
    process.start()
    yield process
    process.stop()


def test_recorded_answers_are_those_of_a_worker(
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

    def states() -> set[str]:
        found: Any = call("GET", f"{url}/connectors?expand=status")
        each = [one["status"] for one in found.values()]
        return {one["connector"]["state"] for one in each} | {
            task["state"] for one in each for task in one["tasks"]
        }

    def has_offsets() -> bool:
        names = (SOURCE["name"], SINK["name"])
        found: list[Any] = [call("GET", f"{url}/connectors/{name}/offsets") for name in names]
        return all(each["offsets"] for each in found)

    def is_running() -> bool:
        with suppress(URLError):
            return states() == {"RUNNING"} and has_offsets()
        return False

    answers: dict[str, object] = {}
    with worker(tmp_path, path, "Distributed", file):
        eventually(tmp_path, is_ready)
        for each, where in ((SOURCE, source), (SINK, sink)):
            config = each | {"file": str(where)}
            call("POST", f"{url}/connectors", {"name": each["name"], "config": config})
        eventually(tmp_path, lambda: len(lines_of(sink)) >= len(LINES))
        for request in (*LOOKS, *ACTS):
            if not request.path.endswith("/resume"):
                eventually(tmp_path, is_running)
            answers[" ".join(request)] = answer_of(url, request)

    assert answers == json.loads(Path(FIXTURE).read_text())


def answer_of(url: str, request: ConnectRequest) -> object:
    where = request.path.format(source=SOURCE["name"], sink=SINK["name"])
    try:
        with urlopen(Request(url + where, method=request.method), timeout=30) as response:
            code, content = response.status, response.read()
    except HTTPError as error:
        code, content = error.code, error.read()
    return [code, form_of(json.loads(content), NAMES) if content else None]
