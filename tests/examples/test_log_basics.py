"""Every program of examples/log-basics shows what it says, on a broker of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "log-basics"
PROGRAMS = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "basics")
README = (EXAMPLES / "README.md").read_text()
START_S_MAX = 120
RUN_S_MAX = 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that looks after its topics often, so that nobody waits for it."""
    address = os.environ.get("HEADWATER_EXAMPLES_BOOTSTRAP")
    if address:
        yield address
        return
    data = tmp_path_factory.mktemp("log-basics") / "data"
    command = [sys.executable, "-m", "headwater.pipelines.cli", "broker", "--quiet"]
    command += ["--data", str(data), "--listen", "127.0.0.1:0"]
    command += ["--set", "housekeeping_interval_ms=100"]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield address_in(data / "endpoint.json", process)
    finally:
        process.terminate()
        assert process.wait(START_S_MAX) == 143


def address_in(endpoint: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + START_S_MAX
    while not endpoint.exists():
        assert process.poll() is None, "the broker runs"
        assert time.monotonic() < deadline, "the broker says where it listens"
        time.sleep(0.02)
    return str(json.loads(endpoint.read_text())["kafka"])


@pytest.fixture(scope="module")
def running(broker: str) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """All programs at once: most of their time is waiting, and topics and groups are their own."""
    programs = {
        name: subprocess.Popen(
            [sys.executable, EXAMPLES / f"{name}.py", broker],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name in PROGRAMS
    }
    yield programs
    for program in programs.values():
        program.kill()
        program.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_shows_what_it_says(
    running: dict[str, "subprocess.Popen[str]"], name: str
) -> None:
    said, _ = running[name].communicate(timeout=RUN_S_MAX)

    assert running[name].returncode == 0, said
    assert "so it is: " in said


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_readme_tells_of_the_program(name: str) -> None:
    assert f"| `{name}.py` | " in README
