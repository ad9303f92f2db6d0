"""kafka-python's own integration suite passes against our broker, but for what is explained."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.budget import IS_LONG
from tests.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.compat

HERE = Path(__file__).parent / "kafka_python"
FILES = (
    "test_admin_integration.py",
    "test_consumer_integration.py",
    "test_producer_integration.py",
)
VERSION = "4.3.0"
RESULT = re.compile(
    r"^test/integration/(\S+::\S+?)(?: <- \S+)? (PASSED|FAILED|ERROR|SKIPPED)", re.M
)
CORE = (
    "test_create_delete_topics or test_describe_configs or test_kafka_consumer or "
    "test_kafka_producer_proper_record_metadata or test_transactional or test_idempotent"
)
"""What `make test` runs of it; `make compat` runs everything."""


def lines_of(name: str) -> list[str]:
    text = (HERE / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fetched = subprocess.run(
        ["scripts/fetch_kafka_python.sh"], capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"kafka-python's sources are not here: {fetched.stderr.strip()}")
    copy = tmp_path_factory.mktemp("kafka-python") / "suite"
    shutil.copytree(Path(fetched.stdout.strip()) / "test", copy / "test")
    (copy / "test" / "__init__.py").touch()
    shutil.copy(HERE / "service.py", copy / "test" / "service.py")
    shutil.copy(HERE / "early_metadata.py", copy / "conftest.py")
    (copy / "servers" / VERSION / "kafka-bin").mkdir(parents=True)
    return copy


def run_suite(sources: Path, address: str, *selection: str) -> dict[str, str]:
    """What became of each test."""
    environment = os.environ | {
        "KAFKA_VERSION": VERSION,
        "KAFKA_URI": f"kafka://{address}",
        "PYTHONPATH": str(sources),
    }
    options = ["-v", "-p", "no:randomly", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
    options += [
        "-o",
        "addopts=",
        "--timeout=60",
        "--timeout-method=signal",
        "-o",
        "log_level=ERROR",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *selection],
        cwd=sources,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = dict(RESULT.findall(done.stdout))
    assert found, f"the suite did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return found


def test_tests_that_passed_once_pass_for_ever(sources: Path, tmp_path: Path) -> None:
    settings = {"group_session_timeout_ms_min": "1000", "default_partitions": "4", "node_id": "0"}
    broker = BrokerProcess(tmp_path / "data", tmp_path / "broker.log", settings)
    broker.launch()
    broker.wait_until_ready()
    selection = [f"test/integration/{name}" for name in FILES]
    if not IS_LONG:
        selection += ["-k", CORE]

    try:
        outcome = run_suite(sources, broker.address, *selection)
    finally:
        broker.stop()

    allowed = {line for line in lines_of("allowed.txt") if line in outcome or IS_LONG}
    explained = {line.split("  ")[0] for line in lines_of("not_passing.txt")}
    passed = {name for name, result in outcome.items() if result == "PASSED"}
    assert allowed - passed == set(), "these passed before"
    assert set(outcome) - passed - explained == set(), "these fail and nobody has said why"
    surprises = sorted(passed & explained)
    assert not surprises, f"these pass now, move them to allowed.txt: {surprises}"
    assert passed, "something of it ran"
