"""Keeps the directory of a whole pipeline as this version leaves it, for later upgrade tests."""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests/golden/kept"
GIVEN = ("people.yaml", "in/people-1.jsonl")
"""What a kept pipeline starts from, the same in all versions."""


def keep(version: str) -> Path:
    """Runs the pipeline of a kept directory anew; refuses to replace a kept one."""
    target = KEPT / f"people-{version}.tar.gz"
    if target.exists():
        raise SystemExit(f"{target} exists; a kept directory is never written anew")
    [given, *_] = sorted(KEPT.glob("people-*.tar.gz"))
    with tempfile.TemporaryDirectory() as place:
        with tarfile.open(given) as archive:
            members = [
                each for each in archive.getmembers() if each.name.removeprefix("./") in GIVEN
            ]
            assert len(members) == len(GIVEN), "a kept directory has what it started from"
            archive.extractall(place, members, filter="data")
        subprocess.run(
            [sys.executable, "-m", "headwater.pipelines.cli", "run", "--once", "people.yaml"],
            cwd=place,
            check=True,
        )
        with tarfile.open(target, "x:gz") as archive:
            for path in sorted(Path(place).iterdir()):
                archive.add(path, path.name)
    return target


if __name__ == "__main__":
    print(keep(sys.argv[1]))
