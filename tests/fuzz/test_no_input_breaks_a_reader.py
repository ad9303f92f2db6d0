"""Whatever bytes arrive, a reader answers or refuses them, soon and in little memory."""

import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).parent / "corpus"
TARGETS = ("request", "batch", "compression", "stored", "file", "stream", "binlog")
USUAL_S = 14
INPUT_S_MAX, INPUT_BYTES_MAX = 20, 4096
WHY_NOT = (
    "atheris has no wheel for this Python or machine: use CPython 3.11 to 3.13 on x86-64 Linux"
)

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason=WHY_NOT),
]


def seconds_each() -> int:
    return max(int(os.environ.get("HEADWATER_FUZZ_SECONDS", USUAL_S)) // len(TARGETS), 1)


def lay_out_seeds(name: str, directory: Path) -> None:
    """Those that the target makes itself, and those that earlier runs found worth keeping."""
    for place, seed in enumerate(import_module(f"tests.fuzz.{name}_target").seeds()):
        (directory / f"seed-{place}").write_bytes(seed)
    kept = CORPUS / f"{name}.zip"
    if kept.exists():
        with zipfile.ZipFile(kept) as archive:
            archive.extractall(directory)


class Run(NamedTuple):
    """One target in its own process."""

    process: "subprocess.Popen[bytes]"
    directory: Path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Run]]:
    """All targets at once, so that every processor is busy."""
    started = {}
    for name in TARGETS:
        directory = tmp_path_factory.mktemp(name)
        (directory / "corpus").mkdir()
        lay_out_seeds(name, directory / "corpus")
        command = [sys.executable, "-m", "tests.fuzz.run_target", name, str(directory / "corpus")]
        command += [
            f"-max_total_time={seconds_each()}",
            f"-timeout={INPUT_S_MAX}",
            f"-max_len={INPUT_BYTES_MAX}",
            "-len_control=0",
            f"-artifact_prefix={directory}/",
        ]
        with (directory / "output").open("wb") as output:
            process = subprocess.Popen(command, cwd=PROJECT, stdout=output, stderr=output)
        started[name] = Run(process, directory)
    yield started
    for run in started.values():
        run.process.kill()
        run.process.wait()


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_crashes_hangs_or_bloats_a_reader(runs: Mapping[str, Run], name: str) -> None:
    process, directory = runs[name]

    code = process.wait()

    output = (directory / "output").read_text(errors="replace")
    assert code == 0, f"{name}: the input is kept in {directory}\n{output[-5000:]}"
    assert "Done " in output
