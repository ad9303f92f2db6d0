"""`make demo` comes to its end, and would notice if the promise were broken."""

import subprocess
import sys
from array import array
from pathlib import Path

from scripts.demo import faults_of

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_finds_nothing_missing_and_nothing_twice() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/demo.py", "20000"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "kill -9 after 1" in done.stdout or "kill -9 after 2" in done.stdout
    assert "nothing that was acknowledged is missing, and nothing is there twice" in done.stdout


def found(*partitions: list[int]) -> list["array[int]"]:
    return [array("q", numbers) for numbers in partitions]


def test_every_broken_promise_is_counted_by_its_name() -> None:
    acknowledged = bytearray([1, 1, 1, 1, 0])
    sound = found([0, 2], [1, 3])

    assert set(faults_of(acknowledged[:4], sound, sound).values()) == {0}

    faults = faults_of(acknowledged, sound, found([0, 1, 1], [3, 0]))

    assert faults == {
        "acknowledged, and missing": 1,  # 2
        "there more than once": 2,  # 0 and 1
        "gone or changed since first read": 3,
        "out of order within a partition": 2,
        "never acknowledged": 1,  # 4
    }


def test_what_is_gone_from_the_end_is_counted_too() -> None:
    gone = faults_of(bytearray([0, 0]), found([0, 1]), found([0]))

    assert gone["gone or changed since first read"] == 1
