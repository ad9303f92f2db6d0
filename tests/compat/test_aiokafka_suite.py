"""aiokafka's own tests pass against our broker, but for what is explained."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.foreign_suite import check_outcome, explained_in
from tests.compat.java_programs import directory_from
from tests.crash.broker_process import BrokerProcess

pytestmark = [
    pytest.mark.compat,
    pytest.mark.long("compat"),
]

HERE = Path(__file__).parent / "aiokafka_suite"
RESULT = re.compile(r"^tests/(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED)(?: \(.*\))? +\[", re.M)
PASSED_MIN = 950
SETTINGS = {
    "default_partitions": "2",
    "group_session_timeout_ms_min": "1000",
    "node_id": "0",
    "housekeeping_interval_ms": "300000",  # as often as Kafka: some records are of 1970
}


def test_its_own_tests_pass(tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    sources = directory_from("fetch_aiokafka.sh", "HEADWATER_AIOKAFKA")
    shutil.copytree(sources / "tests", suite / "tests")
    (suite / "tests" / "conftest.py").rename(suite / "tests" / "own_fixtures.py")
    shutil.copy(HERE / "running_broker.py", suite / "conftest.py")
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", SETTINGS)
    broker.start()

    try:
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-v",
                    "--tb=no",
                    "--no-header",
                    "-p",
                    "no:randomly",
                ),
                *("-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=180"),
                *("--ignore=tests/test_sasl.py", "tests"),
            ],
            cwd=suite,
            env=os.environ | {"HEADWATER_BROKER": broker.address, "PYTHONPATH": str(suite)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        broker.stop()

    outcome = dict(RESULT.findall(done.stdout))
    assert outcome, f"the suite did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    check_outcome(outcome, explained_in(HERE / "not_passing.txt"), passed_min=PASSED_MIN)
