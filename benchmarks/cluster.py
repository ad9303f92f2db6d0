"""Measures three nodes of ours beside three of Apache Kafka: costs, latencies and pauses."""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from benchmarks.client_loads import create_topics
from benchmarks.figures import Collected, Figures, spread
from benchmarks.processes import busy_s, cpu_s, ended_children_s, pss_mb
from benchmarks.servers import KAFKA_HEAP, ROOT, kafka_jars, machine
from benchmarks.stages import run_load
from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.model.log import TopicPartition
from tests.cluster.nodes import COUNT, HeadwaterNodes, KafkaNodes, Nodes
from tests.cluster.view import ClusterView
from tests.simulation.load import batch_of

OURS, KAFKA = "headwater", "kafka"
ROUNDS, KILLS = 5, 10
PARTITIONS = 6
MIN = {"min.insync.replicas": "2"}
SIZES = {100: 500_000, 1000: 200_000}
WARM = 200_000
SOUND_S_MAX = 120.0
PAUSED = TopicPartition("paused", 0)
IDLE_PARTITIONS, IDLE_S = 1_000, 20.0
AFTER_S = 1.0
"""How long a writer works on once it has been answered again."""


class Cluster:
    """Three nodes that run, and what is measured of them."""

    def __init__(self, nodes: Nodes, collected: Collected, name: str, shrink: int) -> None:
        self.nodes, self._collected, self.name, self.shrink = nodes, collected, name, shrink
        self.view = ClusterView(nodes.addresses)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes.bootstrap)

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.nodes.pids))

    def add(self, row: str, figures: Figures) -> None:
        self._collected.add(row, self.name, figures)

    async def sound(self, replicas: int = COUNT) -> None:
        """Every partition is led, and in sync on so many nodes."""
        end_s = time.monotonic() + SOUND_S_MAX
        while problems := await self.view.out_of_sync(self.nodes.awake, replicas):
            self.nodes.check()
            if time.monotonic() > end_s:
                raise RuntimeError(f"the cluster does not become sound: {problems[:3]}")
            await asyncio.sleep(0.02)

    async def topic(self, name: str, partitions: int) -> None:
        create_topics(self.bootstrap, [name], partitions, MIN, replicas=COUNT)
        await self.sound()


async def throughput(cluster: Cluster) -> None:
    """librdkafka, acks=all, replication factor 3: rate, and CPU seconds of all three nodes."""
    await cluster.topic("warm", PARTITIONS)
    count = max(1, WARM // cluster.shrink)
    produce = {"address": cluster.bootstrap, "codec": "none", "acks": "all"}
    run_load("client_loads", "produce", topic="warm", count=count, size=100, **produce)
    for size, records in SIZES.items():
        topic, wanted = f"p-{size}", max(1, records // cluster.shrink)
        await cluster.topic(topic, PARTITIONS)
        before, client_before, all_before = cluster.cpu_s(), ended_children_s(), busy_s()
        figures = run_load(
            "client_loads", "produce", topic=topic, count=wanted, size=size, **produce
        )
        await asyncio.sleep(0.5)  # followers come to their end
        used = cluster.cpu_s() - before
        others = busy_s() - all_before - used - (ended_children_s() - client_before)
        costs = {"server_cpu_s": used, "others_cpu_s": max(0.0, others)}
        memory = {"pss_mb": sum(map(pss_mb, cluster.nodes.pids)) / COUNT}
        cluster.add(f"produce-{size}", figures | costs | memory)


async def latency(cluster: Cluster) -> None:
    """One record of 100 bytes at a time, 200 a second, acks=all."""
    await cluster.topic("latency", 1)
    load = {"per_second": 200, "seconds": 20 / cluster.shrink, "acks": "all"}
    found = run_load(
        "client_loads",
        "latency_to_acknowledged",
        address=cluster.bootstrap,
        topic="latency",
        **load,
    )
    cluster.add("latency", found)


class PausedWriter:
    """Our client, one record after another to one partition; remembers its longest pause."""

    def __init__(self, bootstrap: Sequence[str], random: Random) -> None:
        settings = KafkaSettings(bootstrap=list(bootstrap), retry_for_ms=120_000)
        self._log = KafkaLog(settings, random=random)
        self._is_over, self._last_s = False, time.monotonic()
        self.longest_s, self.count = 0.0, 0

    async def work(self) -> None:
        while not self._is_over:
            batch = batch_of([f"k={self.count}"], SystemClock().now_ms())
            with suppress(HeadwaterError):
                await self._log.append(PAUSED, batch)
                self.answered()
            await asyncio.sleep(0.002)
        await self._log.close()

    def answered(self) -> None:
        now_s = time.monotonic()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s, self.count = now_s, self.count + 1

    def begin(self) -> None:
        self.longest_s, self._last_s = 0.0, time.monotonic()

    def end(self) -> None:
        self._is_over = True


async def pauses(cluster: Cluster) -> None:
    """kill -9, then SIGSTOP, of the node that leads the partition, whether or not it leads the
    quorum, and of the active controller that leads the partition."""
    await cluster.topic(PAUSED.topic, 1)
    writer = PausedWriter(cluster.nodes.bootstrap, Random(1))
    working = asyncio.ensure_future(writer.work())
    try:
        for _ in range(max(1, KILLS // cluster.shrink)):
            for how in ("kill", "freeze"):
                await asyncio.sleep(1)
                leader = (await cluster.view.leader(PAUSED, cluster.nodes.awake))[0]
                controller = await cluster.view.controller(cluster.nodes.awake)
                row = f"{how}-{'both' if controller == [leader] else 'leader'}"
                pause_s = await befall(cluster, writer, how, leader)
                cluster.add(row, {"pause_s": pause_s})
                print(f"    {row}: {pause_s:.2f} s", file=sys.stderr, flush=True)
    finally:
        writer.end()
        await asyncio.gather(working)


async def befall(cluster: Cluster, writer: PausedWriter, how: str, node: int) -> float:
    """Returns the longest time for which the writer was not answered."""
    writer.begin()
    (cluster.nodes.kill if how == "kill" else cluster.nodes.pause)(node)
    before = writer.count
    await until(lambda: writer.count > before + 1)
    await asyncio.sleep(AFTER_S)
    (cluster.nodes.start if how == "kill" else cluster.nodes.resume)(node)
    pause_s = writer.longest_s
    await cluster.sound()
    return pause_s


async def until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + SOUND_S_MAX
    while not is_so():
        if time.monotonic() > end_s:
            raise RuntimeError("the writer does not go on")
        await asyncio.sleep(0.005)


async def catch_up(cluster: Cluster) -> None:
    """A node that is 1 GB behind: from its start to its place in every in-sync set."""
    await cluster.topic("behind", PARTITIONS)
    node = cluster.nodes.awake[-1]
    cluster.nodes.kill(node)
    await cluster.sound(COUNT - 1)
    count = 1_000_000 // cluster.shrink
    run_load(
        "client_loads",
        "produce",
        address=cluster.bootstrap,
        topic="behind",
        count=count,
        size=1000,
        codec="none",
        acks="all",
    )
    started = time.monotonic()
    cluster.nodes.start(node)
    await cluster.sound()
    cluster.add("catch-up", {"seconds": time.monotonic() - started, "bytes": count * 1000.0})


async def many_partitions(cluster: Cluster) -> None:
    """1,000 partitions: what they cost at rest, and how long it takes until all are led again."""
    await cluster.topic("many", max(3, IDLE_PARTITIONS // cluster.shrink))
    await asyncio.sleep(5)
    before, started = [cpu_s(pid) for pid in cluster.nodes.pids], time.monotonic()
    await asyncio.sleep(IDLE_S / cluster.shrink)
    elapsed = time.monotonic() - started
    shares = [
        (cpu_s(pid) - was) / elapsed for pid, was in zip(cluster.nodes.pids, before, strict=True)
    ]
    memory = [pss_mb(pid) for pid in cluster.nodes.pids]
    cluster.add("idle", {"cpu_share_least": min(shares), "cpu_share_most": max(shares)})
    cluster.add("idle", {"pss_mb": max(memory)})
    node = cluster.nodes.awake[-1]
    killed = time.monotonic()
    cluster.nodes.kill(node)
    await until_led_without(cluster, node)
    cluster.add("failover", {"seconds": time.monotonic() - killed})
    cluster.nodes.start(node)
    await cluster.sound()


async def until_led_without(cluster: Cluster, node: int) -> None:
    end_s = time.monotonic() + SOUND_S_MAX
    while True:
        told = await cluster.view.metadata(cluster.nodes.awake[0])
        leaders = {each.leader_id for topic in told.topics for each in topic.partitions}
        if not leaders & {node, -1}:
            return
        if time.monotonic() > end_s:
            raise RuntimeError("partitions are not led again")
        await asyncio.sleep(0.02)


STAGES: dict[str, Callable[[Cluster], Awaitable[None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (throughput, latency, pauses, catch_up, many_partitions)
}


def measure(
    stage: str, name: str, chosen: argparse.Namespace, jars: Path | None, collected: Collected
) -> None:
    """On an empty cluster of its own."""
    directory: Path = chosen.directory / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    cluster = Cluster(MAKES[name](directory, jars), collected, name, chosen.shrink)
    try:
        asyncio.run(run_stage(stage, cluster))
    finally:
        cluster.nodes.end()
        shutil.rmtree(directory, ignore_errors=True)


async def run_stage(stage: str, cluster: Cluster) -> None:
    for node in cluster.nodes.addresses:
        cluster.nodes.start(node)
    await cluster.sound()
    await STAGES[stage](cluster)


def kafka_nodes(directory: Path, jars: Path | None) -> Nodes:
    assert jars is not None, "Kafka is only measured where its jars are"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = ["java", "-server", *KAFKA_HEAP, quiet, "-cp", f"{jars}/*"]
    return KafkaNodes(directory, java, properties="")


def our_nodes(directory: Path, jars: Path | None) -> Nodes:
    return HeadwaterNodes(directory)


MAKES: dict[str, Callable[[Path, Path | None], Nodes]] = {OURS: our_nodes, KAFKA: kafka_nodes}


def main() -> None:
    chosen = arguments()
    jars = kafka_jars() if KAFKA in chosen.only else None
    collected = Collected()
    for number in range(chosen.rounds):
        in_turn = chosen.only if number % 2 == 0 else chosen.only[::-1]
        for stage in chosen.stages:
            for name in in_turn:
                print(f"round {number + 1}, {stage}: {name}", file=sys.stderr, flush=True)
                try:
                    measure(stage, name, chosen, jars, collected)
                except (RuntimeError, AssertionError, OSError, subprocess.SubprocessError) as error:
                    collected.fail(stage, name, error)
                    print(f"    failed: {error}", file=sys.stderr, flush=True)
        write(chosen.results, collected, machine() | {"kafka": jars.name if jars else "none"})
    print((chosen.results / "cluster.md").read_text())


def write(directory: Path, collected: Collected, about: dict[str, object]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    raw = {"about": about, "figures": collected.figures, "failures": collected.failures}
    (directory / "cluster.json").write_text(json.dumps(raw, indent=1) + "\n")
    (directory / "cluster.md").write_text(page(collected, about))


def page(collected: Collected, about: dict[str, object]) -> str:
    names = list(MAKES)
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = [
        "# Three nodes, measured beside three of Apache Kafka\n",
        f"Written by `benchmarks/cluster.py`. {facts}.\n",
        "Medians, with the least, the largest and the number of rounds. Replication factor 3, "
        "acks=all,\nmin.insync.replicas=2; all nodes and the client share the machine. Headwater "
        "waits for all three disks,\nKafka for none.\n",
        row(["What", "Figure", *names]),
        row(["---"] * (2 + len(names))),
    ]
    for what, by_name in collected.figures.items():
        for figure in figures_of(by_name.values()):
            told = [spread(collected.values(what, name, figure)) for name in names]
            lines.append(row([what, figure, *told]))
    lines += [f"\n- not measured: {each}" for each in collected.failures]
    return "\n".join(lines) + "\n"


def figures_of(rounds: Iterable[list[Figures]]) -> list[str]:
    return list(dict.fromkeys(name for each in rounds for figures in each for name in figures))


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=f"of {', '.join(STAGES)}; all")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--only", choices=list(MAKES), action="append", help="one make alone")
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "cluster")
    parser.add_argument("--results", type=Path, default=None, help="where the table is written")
    chosen = parser.parse_args()
    chosen.stages = chosen.stages or list(STAGES)
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
