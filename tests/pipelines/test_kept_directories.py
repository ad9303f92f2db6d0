"""Data directories and targets that older versions left behind go on under this one."""

import json
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

KEPT = sorted((Path(__file__).resolve().parents[1] / "golden/kept").glob("*.tar.gz"))
COLUMNS = ("id", "name", "born", "score", "email")
LATER: list[dict[str, Any]] = [
    {"id": 1, "name": "person 1 later", "born": None, "score": 0.5, "email": None},
    {"id": 3, "name": "person 3 later", "born": None, "score": 0.5, "email": None},
    {"id": 50, "name": "person 50 later", "born": "2000-01-01", "score": -1.0, "email": "new"},
]


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_kept_pipeline_goes_on_in_every_target(kept: Path, tmp_path: Path) -> None:
    with tarfile.open(kept) as archive:
        archive.extractall(tmp_path, filter="data")
    before = versions_in(tmp_path)
    rows = newest_rows(tmp_path / "in/people-1.jsonl")
    assert current_rows(tmp_path) == dict.fromkeys(TARGETS, rows), "the kept targets are whole"

    (tmp_path / "in/people-2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LATER))
    headwater(tmp_path, "run", "--once", "people.yaml")

    rows |= {row["id"]: tuple(row[name] for name in COLUMNS) for row in LATER}
    assert current_rows(tmp_path) == dict.fromkeys(TARGETS, rows)
    after = versions_in(tmp_path)
    assert before.keys() == {"history", "versions"}
    for target, versions in before.items():
        assert versions <= after[target], "a version that was closed stays as it was"
        assert len(after[target]) == len(versions) + 2, "two current versions are closed"
    assert "equal" in headwater(tmp_path, "verify", "people", "-f", "people.yaml")


def headwater(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "headwater.pipelines.cli", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def newest_rows(path: Path) -> dict[int, tuple[Any, ...]]:
    rows = map(json.loads, path.read_text().splitlines())
    return {int(row["id"]): tuple(row[name] for name in COLUMNS) for row in rows}


def in_database(path: Path, *, where: str = "") -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as connection:
        found = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM people {where}").fetchall()
    connection.close()
    return found


def in_lake(path: Path) -> pa.Table:
    return DeltaTable(str(path)).to_pyarrow_table()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in COLUMNS) for row in table.to_pylist()]


def in_files(directory: Path) -> list[tuple[Any, ...]]:
    """Every change in the order of the log, of which the last one of a key is its row."""
    lines = [
        json.loads(line)
        for path in sorted((directory / "people").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [tuple(line[name] for name in COLUMNS) for line in lines]


TARGETS = ("database", "history", "exported", "lake", "versions")


def current_rows(directory: Path) -> dict[str, dict[int, tuple[Any, ...]]]:
    """By target, read by the target's own reader; a target must not have a key twice."""
    versions = in_lake(directory / "versions/people")
    found = {
        "database": in_database(directory / "people.db"),
        "history": in_database(directory / "history.db", where="WHERE _headwater_is_current"),
        "lake": rows_of(in_lake(directory / "lake/people")),
        "versions": rows_of(versions.filter(versions["_headwater_is_current"])),
    }
    for target, rows in found.items():
        assert len(rows) == len({row[0] for row in rows}), target
    found["exported"] = in_files(directory / "files")
    return {target: {row[0]: row for row in rows} for target, rows in found.items()}


def versions_in(directory: Path) -> dict[str, set[tuple[Any, ...]]]:
    """The closed versions of both histories."""
    versions = in_lake(directory / "versions/people")
    return {
        "history": set(
            in_database(directory / "history.db", where="WHERE NOT _headwater_is_current")
        ),
        "versions": set(
            rows_of(versions.filter(pa.compute.invert(versions["_headwater_is_current"])))
        ),
    }
