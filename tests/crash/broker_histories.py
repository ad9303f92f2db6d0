"""Histories whose broker is a process that is taken down again and again."""

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from tests.crash.broker_process import BrokerProcess
from tests.crash.history import SETTINGS, History

RUN_S_MAX = START_S = 0.6
NESTED_SHARE = 0.2
CLEAN_SHARE = 0.1
"""Of all ends: clean ones take other ways through the next start."""


class Disaster(Protocol):
    """A way to take a broker down, after which its files can be used again."""

    @property
    def promised_acks(self) -> Sequence[str]:
        """With which `acks` a record must survive once it was acknowledged."""
        ...

    def data(self) -> Path: ...
    def strike(self, broker: BrokerProcess) -> None: ...
    def close(self) -> None: ...


def live_through(seed: int, disaster: Callable[[Path, Random], Disaster], *, crashes: int) -> None:
    """One history from start to end; a failure says its seed and keeps its files.

    Everything random comes from the seed, but for what the operating system decides.
    """
    directory, random = Path(tempfile.mkdtemp(prefix="headwater-crash-")), Random(seed)
    struck = disaster(directory, random)
    broker = BrokerProcess(struck.data(), directory / "broker.log", SETTINGS)
    history = History(random, broker, promised_acks=struck.promised_acks)
    try:
        history.begin()
        for _ in range(crashes):
            crash(history, broker, struck, random)
        history.end()
    except BaseException as error:
        error.add_note(f"HEADWATER_SEED={seed}; data and the broker's words are in {directory}")
        history.abandon()
        raise
    finally:
        broker.kill_if_running()
        broker.forget()
        broker.end_children()
        struck.close()
    shutil.rmtree(directory)


def crash(history: History, broker: BrokerProcess, disaster: Disaster, random: Random) -> None:
    """Lets it run a little, strikes, perhaps while it recovers again, and checks the rest."""
    time.sleep(0.05 + random.random() * RUN_S_MAX)
    if random.random() < CLEAN_SHARE:
        broker.stop()
    else:
        disaster.strike(broker)
    while random.random() < NESTED_SHARE:
        broker.launch()
        time.sleep(random.random() * START_S)
        disaster.strike(broker)
    broker.start()
    history.check(is_final=False)
