"""A seed has one history: hash seeds, addresses, load and earlier tests change nothing of it."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.core_log.broker.group_commit import GroupCommit
from tests.simulation.__main__ import KINDS, digest_of
from tests.simulation.virtual_time import simulate

pytestmark = pytest.mark.simulation

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"PYTHONHASHSEED": "1", "PYTHONMALLOC": "malloc"}
"""Sets of texts and of objects have another order there."""


@pytest.fixture(autouse=True)
def nothing_is_logged() -> Iterator[None]:
    """Dozens of faults are expected here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_has_one_history_in_every_process(kind: str) -> None:
    check(kind, seed=7)


@pytest.mark.long("sim")
@pytest.mark.parametrize("seed", range(20, 40))
@pytest.mark.parametrize("kind", KINDS)
def test_each_seed_has_one_history_in_every_process(kind: str, seed: int) -> None:
    check(kind, seed)


def test_work_beside_the_event_loop_takes_virtual_time() -> None:
    """In a thread it would end sooner or later, as the machine has time."""
    threads = list[threading.Thread]()

    async def work() -> list[int]:
        committer = GroupCommit(syncs=True, flush_wait_ms_max=10, after_round=lambda _: None)
        committer.run_aside(lambda: threads.append(threading.current_thread()))
        begun = len(threads)
        await committer.close()
        return [begun, len(threads)]

    counts = simulate(Random(1), work)

    assert counts == [0, 1]
    assert threads == [threading.current_thread()]


def check(kind: str, seed: int) -> None:
    """Another process plays at the same time, and this one after whatever it has done before."""
    command = [sys.executable, "-m", "tests.simulation", kind, str(seed), "digest"]
    environment = {**os.environ, **ELSEWHERE}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as fresh:
        here = digest_of(kind, seed)
        elsewhere = fresh.communicate()[0].strip()

    assert here == elsewhere, f"diff what `python -m tests.simulation {kind} {seed}` says"
