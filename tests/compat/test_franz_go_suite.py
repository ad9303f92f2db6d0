"""franz-go's own tests pass against our broker, but for what is explained."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.compat.foreign_suite import check_outcome, explained_in, outcome_of_go
from tests.compat.java_programs import directory_from
from tests.crash.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.long("compat"),
]

HERE = Path(__file__).parent / "franz_go"
PASSED_MIN = 440
RECORDS = 20_000
"""A test moves so many through several groups; its own choice is 500,000."""


def test_its_own_tests_pass(tmp_path: Path) -> None:
    program = directory_from("fetch_franz_go.sh", "HEADWATER_FRANZ_GO") / "kgo.test"
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", {})
    broker.start()

    try:
        done = subprocess.run(
            [program, "-test.v", "-test.timeout=60m"],
            cwd=tmp_path,
            env=os.environ
            | {
                "KGO_SEEDS": broker.address,
                "KGO_TEST_RF": "1",
                "KGO_TEST_RECORDS": str(RECORDS),
                "KGO_LOG_LEVEL": "none",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
    finally:
        broker.stop()

    outcome = outcome_of_go(done.stdout)
    check_outcome(outcome, explained_in(HERE / "not_passing.txt"), passed_min=PASSED_MIN)
