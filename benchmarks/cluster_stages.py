"""What three nodes cost, how late they answer, and how soon they are whole again."""

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from statistics import median

from benchmarks.cluster_nodes import MIN, PARTITIONS, SOUND_S_MAX, Cluster
from benchmarks.cluster_pipeline import rows_through
from benchmarks.cluster_report import ALONE, KAFKA
from benchmarks.processes import busy_s, cpu_s, ended_children_s, pss_mb
from benchmarks.stages import run_load
from headwater.core_log.protocol.messages.api_versions import ApiVersionsRequest
from tests.cluster.nodes import COUNT
from tests.cluster.view import NO_ANSWER, ask
from tests.databases import running_postgres

SIZES = {100: 500_000, 1000: 200_000}
WARM = 200_000
FLUSHED = 100_000
BEHIND = 1_000_000
IDLE_PARTITIONS, IDLE_S = 1_000, 20.0
PING_S = 0.005
SYNCS = 200
PIPELINE_ROWS = 3_000_000
KILL_EVERY_S, AWAY_S = 20.0, 3.0


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
        begun = time.monotonic()
        figures = run_load(
            "client_loads", "produce", topic=topic, count=wanted, size=size, **produce
        )
        await asyncio.sleep(0.5)  # followers come to their end
        used = cluster.cpu_s() - before
        others = busy_s() - all_before - used - (ended_children_s() - client_before)
        costs = {"server_cpu_s": used, "others_cpu_s": max(0.0, others)}
        quiet = {"others_cores": costs["others_cpu_s"] / (time.monotonic() - begun)}
        memory = {"pss_mb": sum(map(pss_mb, cluster.nodes.pids)) / COUNT}
        cluster.add(f"produce-{size}", figures | costs | quiet | memory)


async def flushed(cluster: Cluster) -> None:
    """The same while Kafka waits for its disks, too."""
    await cluster.topic(
        "flushed", PARTITIONS, MIN | ({"flush.messages": "1"} if cluster.name == KAFKA else {})
    )
    count = max(1, FLUSHED // cluster.shrink)
    produce = {"address": cluster.bootstrap, "codec": "none", "acks": "all"}
    figures = run_load("client_loads", "produce", topic="flushed", count=count, size=100, **produce)
    cluster.add("flushed", figures)


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
    cluster.add("latency", found | {"disk_ms": sync_ms(cluster.nodes.directory)})


def sync_ms(directory: Path) -> float:
    """The median time of a small write with its sync."""
    took = list[float]()
    with (directory / "synced").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            file.write(bytes(200))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - begun)
    return median(took) * 1_000


async def catch_up(cluster: Cluster) -> None:
    """A node that is 1 GB behind: from its start to its place in every in-sync set."""
    await cluster.topic("behind", PARTITIONS)
    node = cluster.nodes.awake[-1]
    cluster.nodes.kill(node)
    await cluster.sound(COUNT - 1)
    count = BEHIND // cluster.shrink
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
    pings = [asyncio.ensure_future(ping(cluster, each)) for each in cluster.nodes.awake[:-1]]
    killed = time.monotonic()
    cluster.nodes.kill(node)
    await until_led_without(cluster, node)
    seconds = time.monotonic() - killed
    for each in pings:
        each.cancel()
    held_ms = [await each for each in pings]
    cluster.add("failover", {"seconds": seconds, "held_ms": max(held_ms)})
    cluster.nodes.start(node)
    await cluster.sound()


async def ping(cluster: Cluster, node: int) -> float:
    """Returns how late the latest of many small answers was, in ms; ends when it is cancelled."""
    latest_s = 0.0
    with suppress(asyncio.CancelledError):
        while True:
            asked_s = time.monotonic()
            with suppress(*NO_ANSWER):
                await ask(cluster.nodes.addresses[node], ApiVersionsRequest(), 0)
            latest_s = max(latest_s, time.monotonic() - asked_s)
            await asyncio.sleep(PING_S)
    return latest_s * 1_000


async def until_led_without(cluster: Cluster, node: int) -> None:
    end_s = time.monotonic() + SOUND_S_MAX
    while True:
        told = await cluster.view.metadata(cluster.nodes.awake[0])
        leaders = {each.leader_id for topic in told.topics for each in topic.partitions}
        if not leaders & {node, -1}:
            return
        if time.monotonic() > end_s:
            raise RuntimeError("partitions are not led again")
        await asyncio.sleep(0.05)


async def pipeline(cluster: Cluster) -> None:
    """PostgreSQL to Delta, over three of ours with one killed every 20 s, and over one."""
    rows = PIPELINE_ROWS // cluster.shrink
    with running_postgres() as postgres:
        place = cluster.nodes.directory / "over-three"
        working = asyncio.ensure_future(
            asyncio.to_thread(rows_through, cluster.bootstrap, place, postgres, rows)
        )
        kills = 0
        while not working.done():
            await asyncio.wait([working], timeout=KILL_EVERY_S)
            if not working.done():
                kills += 1
                node = cluster.nodes.awake[kills % COUNT]
                cluster.nodes.kill(node)
                await asyncio.sleep(AWAY_S)
                cluster.nodes.start(node)
                await cluster.sound()
        cluster.add("pipeline", await working | {"kills": float(kills)})
        cluster.nodes.stop_all()
        place = cluster.nodes.directory / "over-one"
        found = await asyncio.to_thread(rows_through, "", place, postgres, rows)
        cluster.add_for("pipeline", ALONE, found)
