"""kafkajs does its everyday work on our broker: topics, groups, transactions, administration."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.compat.java_programs import RUN_S_MAX, directory_from
from tests.crash.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.long("compat"),
]

SCENARIO = Path(__file__).parent / "javascript" / "scenario.js"
PROMISES = 15


def test_every_promise_of_the_scenario_is_kept(tmp_path: Path) -> None:
    modules = directory_from("fetch_kafkajs.sh", "HEADWATER_KAFKAJS")
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", {})
    broker.start()
    try:
        done = subprocess.run(
            ["node", SCENARIO, broker.address],
            env=os.environ
            | {"NODE_PATH": str(modules / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
        )
    finally:
        broker.stop()

    told = done.stdout.splitlines()
    assert [line for line in told if not line.startswith("ok ")] == [], done.stderr
    assert len(told) == PROMISES
