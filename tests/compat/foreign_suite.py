"""The outcome of another client's own tests, beside the list of those that do not pass."""

import re
from collections.abc import Mapping
from pathlib import Path

PASSED = "PASSED"
RESULT_OF_GO = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(", re.M)
WORDS_OF_GO = {"PASS": PASSED, "FAIL": "FAILED", "SKIP": "SKIPPED"}


def outcome_of_go(said: str) -> Mapping[str, str]:
    """What `go test -v` has said of each test."""
    outcome = {name: WORDS_OF_GO[word] for word, name in RESULT_OF_GO.findall(said)}
    assert outcome, f"the suite did not run: {said[-2000:]}"
    return outcome


def lines_of(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


def explained_in(file: Path) -> set[str]:
    """Tests that do not pass: a test, two spaces, a reason."""
    found = {name: reason for name, _, reason in (x.partition("  ") for x in lines_of(file))}
    assert all(found.values()), "each has its reason"
    return set(found)


def check_outcome(outcome: Mapping[str, str], explained: set[str], *, passed_min: int) -> None:
    """Everything passes but what is explained, and what is explained does not pass. The name of a
    test explains its cases."""
    passed = {name for name, result in outcome.items() if result == PASSED}
    left = set(outcome) - passed - explained
    unexplained = sorted(name for name in left if name.partition("[")[0] not in explained)
    assert not unexplained, f"these fail and nobody has said why: {unexplained}"
    surprises = sorted(passed & explained)
    assert not surprises, f"these pass now, strike them off the list: {surprises}"
    assert len(passed) >= passed_min, f"{passed_min} passed before, now {len(passed)}"
