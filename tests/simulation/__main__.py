"""Plays one history and prints all that happened, for `diff`, or only its digest:
`python -m tests.simulation KIND SEED [digest]`."""

import logging
import sys
from collections.abc import Callable, Mapping

from tests.simulation.pipeline_world import play_pipeline
from tests.simulation.trace import Trace
from tests.simulation.world import CLUSTER_FAULTS, Faults, play


def play_cluster(seed: int, trace: Trace) -> str:
    faults = [*CLUSTER_FAULTS, Faults.hang_disk, Faults.lose_disk]
    history = play(seed, virtual_s=2.0, faults=faults, nodes=3, trace=trace)
    return "\n".join([*history.faults, *history.problems, history.digest])


def play_broker(seed: int, trace: Trace) -> str:
    history = play(seed, virtual_s=3.0, trace=trace)
    return "\n".join([*history.faults, *history.problems, history.digest])


def play_one_pipeline(seed: int, trace: Trace) -> str:
    world = play_pipeline(seed, virtual_s=3.0, trace=trace)
    return "\n".join([*world.said, *world.problems, trace.digest])


KINDS: Mapping[str, Callable[[int, Trace], str]] = {
    "broker": play_broker,
    "cluster": play_cluster,
    "pipeline": play_one_pipeline,
}


def digest_of(kind: str, seed: int) -> str:
    """Of the whole history."""
    return KINDS[kind](seed, Trace()).split("\n")[-1]


def main(kind: str, seed: str, *wanted: str) -> None:
    logging.disable(logging.CRITICAL)
    if "digest" in wanted:
        sys.stdout.write(digest_of(kind, int(seed)) + "\n")
        return
    trace = Trace(keeps_text=True)
    outcome = KINDS[kind](int(seed), trace)
    sys.stdout.write("\n".join([*trace.text, outcome]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
