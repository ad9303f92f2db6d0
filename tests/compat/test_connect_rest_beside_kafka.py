"""The console's /connect answers as a real worker of Kafka Connect 4.3 does."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from tests.compat.connect_worker import SINK, SOURCE, ConnectWorker
from tests.compat.test_kafka_connect import broker
from tests.crash.broker_process import BrokerProcess
from tests.pipelines.console.connect_requests import (
    ACTS,
    FIXTURE,
    LOOKS,
    ConnectRequest,
    form_of_answer,
)

pytestmark = [pytest.mark.compat, pytest.mark.kafka]

__all__ = ["broker"]
NAMES = {SOURCE["name"]: "SOURCE", SINK["name"]: "SINK"}


def test_recorded_answers_are_those_of_a_worker(broker: BrokerProcess, tmp_path: Path) -> None:
    worker = ConnectWorker(tmp_path, broker.address)
    answers: dict[str, object] = {}

    with worker.distributed():
        worker.create_connectors()
        for request in (*LOOKS, *ACTS):
            if not request.path.endswith("/resume"):
                worker.wait_until(lambda: is_running(worker))
            answers[" ".join(request)] = answer_of(worker.url, request)

    if os.environ.get("HEADWATER_GOLDEN") == "write":
        Path(FIXTURE).write_text(json.dumps(answers, indent=1) + "\n")
    assert answers == json.loads(Path(FIXTURE).read_text())


def is_running(worker: ConnectWorker) -> bool:
    with suppress(URLError):
        return states_of(worker) == {"RUNNING"} and has_offsets(worker)
    return False


def states_of(worker: ConnectWorker) -> set[str]:
    found: Any = worker.call("GET", "/connectors?expand=status")
    each = [one["status"] for one in found.values()]
    return {one["connector"]["state"] for one in each} | {
        task["state"] for one in each for task in one["tasks"]
    }


def has_offsets(worker: ConnectWorker) -> bool:
    names = (SOURCE["name"], SINK["name"])
    found: list[Any] = [worker.call("GET", f"/connectors/{name}/offsets") for name in names]
    return all(each["offsets"] for each in found)


def answer_of(url: str, request: ConnectRequest) -> object:
    where = request.path.format(
        source=SOURCE["name"], sink=SINK["name"], plugin=SOURCE["connector.class"]
    )
    try:
        with urlopen(Request(url + where, method=request.method), timeout=30) as response:
            code, content = response.status, response.read()
    except HTTPError as error:
        code, content = error.code, error.read()
    return [code, form_of_answer(request, json.loads(content), NAMES) if content else None]
