"""Counts how many of our own functions a broker calls while nobody asks anything of it."""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings

OURS = str(Path(__file__).resolve().parents[1])
SETTLED_S = 2.0
"""Behind a transaction, until the log is up to date with it."""


class Calls:
    """Of functions below our own directory, by name; no time is measured."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(OURS) and "/.venv/" not in path:
            self.counts[f"{path[len(OURS) + 1 :]}:{frame.f_code.co_qualname}"] += 1


async def calls_at_rest(directory: Path, *, topics: int, seconds: float) -> Counter[str]:
    settings = BrokerSettings(data=directory, listen="127.0.0.1:0")
    broker = await RunningBroker.start(settings)
    log = KafkaLog(KafkaSettings(bootstrap=[broker.endpoint]))
    try:
        for number in range(topics):
            await log.ensure_topic(TopicSettings(name=f"t{number}", partitions=1))
        async with (await log.writer("rest")).transaction():
            pass
        await log.close()
        await asyncio.sleep(SETTLED_S)
        calls = Calls()
        sys.setprofile(calls)
        await asyncio.sleep(seconds)
        sys.setprofile(None)
        return calls.counts
    finally:
        await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        work = calls_at_rest(Path(directory), topics=chosen.topics, seconds=chosen.seconds)
        counts = asyncio.run(work)
    for name, count in counts.most_common(20):
        sys.stdout.write(f"{count / chosen.seconds:8.1f}  {name}\n")
    sys.stdout.write(f"{counts.total() / chosen.seconds:8.1f}  in all, per second\n")


if __name__ == "__main__":
    main()
