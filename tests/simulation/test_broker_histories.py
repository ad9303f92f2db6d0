"""Whatever is killed, paused, cut off or failed, a broker loses, doubles, tears and invents
nothing, and works again once nothing fails any more."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.storage import recovery
from headwater.core_log.storage.producers import ProducerStates
from tests.simulation.world import Fault, Faults, play

pytestmark = pytest.mark.simulation

HISTORIES = max(4, settings().max_examples // 20)
SHORT_S = 8.0
TRIES_MAX = 60
"""Histories within which a missing rule must be found; most are found by the first few."""


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Thousands of faults are expected here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_a_history_without_faults_is_sound() -> None:
    history = play(1, virtual_s=2.0, faults=())

    assert not history.problems
    assert sum(map(len, history.seen.final.values())) > 100


@settings(max_examples=HISTORIES)
@given(seed=st.integers(0, 2**32))
def test_no_history_breaks_a_promise(seed: int) -> None:
    history = play(seed, virtual_s=SHORT_S)

    assert not history.problems, "\n".join([*history.faults, *history.problems[:20]])


def is_found(problem: str, *faults: Fault, **broker: Any) -> bool:
    """Whether some history of a world that knows only these faults has a problem that begins so."""
    return any(
        each.startswith(problem)
        for seed in range(TRIES_MAX)
        for each in play(seed, virtual_s=SHORT_S, faults=faults, **broker).problems
    )


def test_a_log_that_does_not_wait_for_the_disk_is_found() -> None:
    assert is_found("lost: ", Faults.cut_power, fsync="never")


def test_a_log_that_does_not_know_a_repeated_batch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check_nothing(self: ProducerStates, header: BatchHeader) -> None:
        """Takes every batch."""

    monkeypatch.setattr(ProducerStates, "check", check_nothing)

    assert is_found("doubled: ", Faults.reset_connections, Faults.cut_link)


def test_a_log_that_believes_what_a_failed_sync_left_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "write_again", lambda file, position, end: None)

    assert is_found("", Faults.fail_syncs_and_kill, Faults.cut_power)
