"""The wheel, in an environment of its own: it owns one name, and leaves all others to users."""

import os
import re
import sqlite3
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
pipeline: shop
source: {type: files, path: "orders/*.csv", table: orders, key: id, settle: 0s}
transform: [{table: orders, python: "rules:marked"}]
sink: {type: sql, url: "sqlite:///shop.db"}
"""
RULES = """\
from config import MARK

def marked(rows):
    return [{**row, "note": MARK} for row in rows]
"""
PROGRAM = """\
import asyncio, sys
import headwater
status = asyncio.run(headwater.run_pipeline("pipeline.yaml", once=True))
print(status["undelivered"], sorted({"core_log", "sinks"} & sys.modules.keys()))
"""


def build(kind: str, source: Path, target: Path) -> Path:
    target.mkdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    [built] = target.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the wheel is installed; dependencies are those of the tests."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = ["--python", str(place), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_owns_one_name_and_what_spark_looks_for(wheel: Path) -> None:
    names = names_in(wheel)

    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {
        "headwater",
        "pyspark_headwater",
    }
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "core_log").rglob("*.py")} == {
        name.removeprefix("headwater/")
        for name in names
        if name.startswith("headwater/core_log/") and name.endswith(".py")
    }


@pytest.mark.slow
def test_a_wheel_made_of_the_source_distribution_is_the_same(wheel: Path, tmp_path: Path) -> None:
    made = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()

    again = build("wheel", unpacked, tmp_path / "again")

    assert names_in(again) == names_in(wheel)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A pipeline file beside a package of the user's that has a name which we have used as well."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    (tmp_path / "rules.py").write_text(RULES)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/__init__.py").write_text('MARK = "from my config"\n')
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders/1.csv").write_text("id,note\n1,a\n2,b\n")
    return tmp_path


def rows_of(project: Path) -> list[tuple[object, ...]]:
    with sqlite3.connect(project / "shop.db") as database:
        return database.execute("SELECT id, note FROM orders ORDER BY id").fetchall()


@pytest.mark.slow
def test_the_commands_of_the_readme_run_beside_a_package_named_config(
    environment: Path, project: Path
) -> None:
    readme = (ROOT / "README.md").read_text()
    said = re.findall(r"^\$ \.venv/bin/headwater (\w+)", readme, re.MULTILINE)
    assert said[:5] == ["doctor", "plan", "run", "ui", "verify"]
    command = str(environment / "bin/headwater")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    for words in (["doctor"], ["plan"], ["run", "--once"], ["verify", "shop"]):
        done = subprocess.run(
            [command, *words], cwd=project, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    assert rows_of(project) == [(1, "from my config"), (2, "from my config")]


@pytest.mark.slow
def test_the_program_of_the_page_writes_to_the_log_and_reads_it(
    environment: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs/python-api.md").read_text()
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[1]

    done = subprocess.run(
        [environment / "bin/python", "-c", program],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "b'paid'\n"), done.stderr


@pytest.mark.slow
def test_a_program_runs_a_pipeline(environment: Path, project: Path) -> None:
    done = subprocess.run(
        [environment / "bin/python", "-c", PROGRAM],
        cwd=project,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "[] []"), done.stderr
    assert rows_of(project) == [(1, "from my config"), (2, "from my config")]
