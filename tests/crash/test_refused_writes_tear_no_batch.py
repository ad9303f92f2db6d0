"""A disk that refuses writes for a while, anywhere, costs nobody anything but time."""

import errno
import os
import time
from pathlib import Path
from random import Random

import pytest

from tests.crash.broker_thread import BrokerThread
from tests.crash.history import SETTINGS, History, Plan

PLAN = Plan.from_environment("HEADWATER_FULL_DISKS", short=5, long=100)
TAKING_ROOM = {"write", "create", "replace", "open"}


class NoRoom:
    """Some writes find room and some do not, as on a disk that others fill and empty too."""

    def __init__(self, random: Random, share: float) -> None:
        self._random, self._share = random, share

    def __call__(self, operation: str, path: Path) -> None:
        if operation in TAKING_ROOM and self._random.random() < self._share:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.mark.crash
@pytest.mark.parametrize("seed", PLAN.seeds(), ids=PLAN.names())
def test_a_disk_without_room_at_times_loses_repeats_and_tears_nothing(
    seed: int, tmp_path: Path
) -> None:
    random, broker = Random(seed), BrokerThread(tmp_path / "data", SETTINGS)
    history = History(random, broker, promised_acks=("all", "1"))
    try:
        history.begin()
        for _ in range(PLAN.crashes_each):
            time.sleep(random.random() * 0.4)
            broker.files.fault = NoRoom(random, random.choice((0.01, 0.1, 1.0)))
            time.sleep(random.random() * 0.4)
            broker.files.heal()
            history.check(is_final=False)
        history.end()
    except BaseException as error:
        error.add_note(f"HEADWATER_SEED={seed}; data is in {tmp_path}")
        history.abandon()
        raise
    finally:
        broker.close()
