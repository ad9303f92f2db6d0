"""Measures three nodes of ours beside three of Apache Kafka: costs, latencies and pauses."""

# Run it on a quiet machine: python -m benchmarks.cluster [STAGE ...] [--rounds 5] [--more]
# The longest pause of many kills: python -m benchmarks.cluster kills --kills 100 --rounds 1 --more

import argparse
import asyncio
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

from benchmarks.cluster_nodes import Cluster
from benchmarks.cluster_pauses import KILLS, cuts, hangs, kills, pauses, stops
from benchmarks.cluster_report import KAFKA, OURS, read, write
from benchmarks.cluster_stages import (
    catch_up,
    flushed,
    latency,
    many_partitions,
    pipeline,
    throughput,
)
from benchmarks.figures import Collected
from benchmarks.servers import KAFKA_HEAP, ROOT, kafka_jars, machine
from tests.cluster.disks import HangingDisk, NodesOnDisks
from tests.cluster.links import Links, can_have_namespaces
from tests.cluster.nodes import COUNT, HeadwaterNodes, KafkaNodes, Nodes

ROUNDS = 5

STAGES: dict[str, Callable[[Cluster], Awaitable[None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        throughput,
        flushed,
        latency,
        pauses,
        kills,
        stops,
        cuts,
        hangs,
        catch_up,
        many_partitions,
        pipeline,
    )
}
ON_REQUEST = ("kills",)
"""Adds to the rows of `pauses`."""
OF_OURS = ("pipeline", "hangs")
"""What would say nothing of Kafka's nodes, which wait for no disk."""


def measure(
    stage: str, name: str, chosen: argparse.Namespace, jars: Path | None, collected: Collected
) -> None:
    """On an empty cluster of its own."""
    directory: Path = chosen.directory / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        asyncio.run(run_stage(stage, name, directory, jars, collected, chosen))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def run_stage(
    stage: str,
    name: str,
    directory: Path,
    jars: Path | None,
    collected: Collected,
    chosen: argparse.Namespace,
) -> None:
    links = Links(range(1, COUNT + 1)) if stage == "cuts" and can_have_namespaces() else None
    nodes: Nodes
    if stage == "hangs":
        nodes = NodesOnDisks(directory, HangingDisk, Random(1))
    else:
        nodes = MAKES[name](directory, jars, links)
    cluster = Cluster(nodes, collected, name, shrink=chosen.shrink, kills=chosen.kills)
    try:
        if links:
            links.connect({node: nodes.ports(node) for node in nodes.addresses})
        for node in nodes.addresses:
            nodes.start(node)
        await cluster.sound()
        await STAGES[stage](cluster)
    finally:
        nodes.end()
        if links:
            await links.close()


def kafka_nodes(directory: Path, jars: Path | None, links: Links | None) -> Nodes:
    assert jars is not None, "Kafka is only measured where its jars are"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = ["java", "-server", *KAFKA_HEAP, quiet, "-cp", f"{jars}/*"]
    return KafkaNodes(directory, java, links, properties="")


def our_nodes(directory: Path, jars: Path | None, links: Links | None) -> Nodes:
    return HeadwaterNodes(directory, links)


MAKES: dict[str, Callable[[Path, Path | None, Links | None], Nodes]] = {
    OURS: our_nodes,
    KAFKA: kafka_nodes,
}


def main() -> None:
    chosen = arguments()
    jars = kafka_jars() if KAFKA in chosen.only else None
    collected = Collected()
    kafka = jars.name if jars else "none"
    if chosen.more:
        kept = read(chosen.results, collected)
        kafka = kafka if jars else kept
    for number in range(chosen.rounds):
        in_turn = chosen.only if number % 2 == 0 else chosen.only[::-1]
        for stage in chosen.stages:
            for name in in_turn:
                if stage in OF_OURS and name != OURS:
                    continue
                print(f"round {number + 1}, {stage}: {name}", file=sys.stderr, flush=True)
                try:
                    measure(stage, name, chosen, jars, collected)
                except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
                    collected.fail(stage, name, error)
                    print(f"    failed: {error}", file=sys.stderr, flush=True)
        write(chosen.results, collected, machine() | {"kafka": kafka})
    print((chosen.results / "cluster.md").read_text())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--more", action="store_true", help="add to the figures that are kept")
    parser.add_argument("--kills", type=int, default=KILLS, help="of the stage `kills`")
    parser.add_argument("--only", choices=list(MAKES), action="append", help="one make alone")
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "cluster")
    parser.add_argument("--results", type=Path, default=None, help="where the table is written")
    chosen = parser.parse_args()
    chosen.stages = chosen.stages or [each for each in STAGES if each not in ON_REQUEST]
    if unknown := set(chosen.stages) - set(STAGES):
        parser.error(f"no such stage: {', '.join(sorted(unknown))}")
    chosen.only = chosen.only or list(MAKES)
    chosen.shrink = 10 if chosen.quick else 1
    chosen.rounds = 1 if chosen.quick else chosen.rounds
    kept = ROOT / "benchmarks" / "results"  # a quick look must not replace a measurement
    chosen.results = chosen.results or (ROOT / ".cache" / "results" if chosen.quick else kept)
    return chosen


if __name__ == "__main__":
    main()
