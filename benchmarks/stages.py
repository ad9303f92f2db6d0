"""The stretches of a round: each starts a server of its own on an empty directory and loads it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.client_loads import create_topics, end_offsets
from benchmarks.figures import Collected, Figures
from benchmarks.processes import PeakMemory, busy_s, cpu_s, ended_children_s, pss_mb
from benchmarks.servers import ROOT, FormerHeadwater, Headwater, Kafka, Process
from benchmarks.wire import connect, first_answer

LOAD_S_MAX = 180
PARTITIONS = 4
CODECS = ("none", "lz4", "zstd")
SIZES = {100: 2_000_000, 1000: 400_000}
"""Bytes of a record to records of a run."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One server's part of one round."""

    name: str
    directory: Path
    jars: Path | None
    shrink: int
    """Loads are divided by this: 1, or more for a quick look."""
    collected: Collected
    former: Path | None = None
    """The checkout of an earlier version, which is then measured too."""

    def new_server(self) -> Process:
        directory = self.directory / self.name
        if self.name == Headwater.name:
            return Headwater(directory)
        if self.former and self.name == FormerHeadwater.name:
            return FormerHeadwater(directory, self.former)
        assert self.jars is not None, "Kafka is only measured where its jars are"
        return Kafka(directory, self.jars)

    @contextmanager
    def server(self) -> Iterator[Process]:
        server = self.new_server()
        try:
            server.start()
            yield server
        finally:
            server.remove()

    def add(self, row: str, figures: Figures) -> None:
        self.collected.add(row, self.name, figures)

    def scaled(self, count: int) -> int:
        return max(1, count // self.shrink)

    def measured(self, row: str, server: Process, module: str, load: str, **arguments: Any) -> None:
        """Runs a load and keeps its figures, with what they cost the server."""
        before, client_before, all_before = cpu_s(server.pid), ended_children_s(), busy_s()
        started = time.perf_counter()
        with PeakMemory(server.pid).watching() as memory:
            figures = run_load(module, load, address=server.address, **arguments)
        elapsed = time.perf_counter() - started
        server_s = cpu_s(server.pid) - before
        others_s = busy_s() - all_before - server_s - (ended_children_s() - client_before)
        costs = {
            "server_cpu_s": server_s,
            "server_pss_mb": memory.mb,
            "others_cores": max(0.0, others_s / elapsed),
        }
        self.add(row, figures | costs)


def run_load(module: str, load: str, **arguments: Any) -> Figures:
    """In a process of its own, so that loads and bookkeeping do not share an interpreter."""
    command = [sys.executable, "-m", f"benchmarks.{module}", load, json.dumps(arguments)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_S_MAX, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr else "load failed")
    found: Figures = json.loads(done.stdout)
    return found


def warm(server: Process, bench: Bench) -> None:
    """Lets a just-in-time compiler see what is coming; the same for both."""
    create_topics(server.address, ["warm"], PARTITIONS, {})
    common = {"address": server.address, "topic": "warm"}
    count = bench.scaled(500_000)
    run_load("client_loads", "produce", **common, count=count, size=100, codec="none", acks="1")
    run_load("client_loads", "consume", **common, count=count)


def with_client(bench: Bench) -> None:
    """librdkafka, acks=1: produce every size and codec, count what is there, read it back."""
    with bench.server() as server:
        warm(server, bench)
        for size, records in SIZES.items():
            for codec in CODECS:
                topic, count = f"p-{size}-{codec}", bench.scaled(records)
                create_topics(server.address, [topic], PARTITIONS, {})
                client = {"topic": topic, "count": count}
                bench.measured(
                    f"produce-{size}-{codec}", server, "client_loads", "produce",
                    **client, size=size, codec=codec, acks="1",
                )  # fmt: skip
                sent = int(
                    bench.collected.values(f"produce-{size}-{codec}", bench.name, "count")[-1]
                )
                held = wait_for_records(server.address, topic, sent)
                if held != sent:
                    raise RuntimeError(f"{sent} records were acknowledged and {held} are there")
                bench.measured(
                    f"consume-{size}-{codec}", server, "client_loads", "consume",
                    topic=topic, count=sent,
                )  # fmt: skip


def wait_for_records(address: str, topic: str, count: int) -> int:
    """Acknowledged by acks=1 is not yet on disk, and so not yet counted by a server that waits."""
    for _ in range(100):
        held = end_offsets(address, topic)
        if held >= count:
            break
        time.sleep(0.05)
    return held


def with_batches(bench: Bench) -> None:
    """Ready batches over bare sockets: appended, then fetched from the page cache."""
    megabytes = bench.scaled(600)
    with bench.server() as server:
        create_topics(server.address, ["warm", "raw-64k", "raw-1m"], 1, SEGMENTS)
        warming = {"batch_bytes": 65_536, "window": 8, "acks": 1, "megabytes": bench.scaled(100)}
        run_load("raw_loads", "produce_windows", address=server.address, topic="warm", **warming)
        for row, batch_bytes, window in (("raw-64k", 65_536, 8), ("raw-1m", 1_000_000, 4)):
            bench.measured(
                row, server, "raw_loads", "produce_windows", topic=row,
                batch_bytes=batch_bytes, megabytes=megabytes, window=window, acks=1,
            )  # fmt: skip
        for connections in (1, 8):
            bench.measured(
                f"fetch-{connections}", server, "raw_loads", "fetch", topic="raw-64k",
                batch_bytes=65_536, bytes_max=1 << 20, connections=connections,
                megabytes=bench.scaled(4000),
            )  # fmt: skip


SEGMENTS = {"segment.bytes": str(1 << 30), "max.message.bytes": "2000000"}


def on_disk_before_the_answer(bench: Bench) -> None:
    """acks=all, 64 connections with one batch in flight each; Kafka told to sync every batch."""
    with bench.server() as server:
        create_topics(server.address, ["warm", "synced"], PARTITIONS, {"flush.messages": "1"})
        load = {"batch_bytes": 65_536, "connections": 64, "partitions": PARTITIONS, "acks": -1}
        seconds = 5 / bench.shrink
        run_load(
            "raw_loads", "produce_in_step", address=server.address, topic="warm",
            seconds=seconds / 4, **load,
        )  # fmt: skip
        bench.measured(
            "synced",
            server,
            "raw_loads",
            "produce_in_step",
            topic="synced",
            seconds=seconds,
            **load,
        )


def one_at_a_time(bench: Bench) -> None:
    """Latencies at rates far below the limit."""
    with bench.server() as server:
        create_topics(server.address, ["warm", "acked", "consumed"], 1, {})
        create_topics(server.address, ["consumed-synced"], 1, {"flush.messages": "1"})
        seconds = 6 / min(3, bench.shrink)
        paced = {"per_second": 2000, "seconds": 2, "acks": "all"}
        run_load(
            "client_loads", "latency_to_consumed", address=server.address, topic="warm", **paced
        )
        bench.measured(
            "latency-acknowledged", server, "client_loads", "latency_to_acknowledged",
            topic="acked", per_second=500, seconds=seconds, acks="1",
        )  # fmt: skip
        for topic in ("consumed", "consumed-synced"):
            bench.measured(
                f"latency-{topic}", server, "client_loads", "latency_to_consumed",
                topic=topic, per_second=1000, seconds=seconds, acks="all",
            )  # fmt: skip


def from_start(bench: Bench) -> None:
    """Ten topics and a gigabyte: at rest, then started after a clean stop and after kill -9."""
    server = bench.new_server()
    topics = [f"t{index}" for index in range(10)]
    load = {"batch_bytes": 65_536, "megabytes": bench.scaled(100), "window": 8, "acks": 1}
    try:
        server.start()
        create_topics(server.address, topics, 1, {})
        time.sleep(2)
        bench.add("memory-idle", {"server_pss_mb": pss_mb(server.pid)})
        for topic in topics:
            run_load("raw_loads", "produce_windows", address=server.address, topic=topic, **load)
        server.topic_count = len(topics)
        server.stop()
        bench.add("start-clean", {"seconds": server.start()})
        endless = json.dumps(load | {"address": server.address, "topic": "t0", "megabytes": 10_000})
        command = [sys.executable, "-m", "benchmarks.raw_loads", "produce_windows", endless]
        busy = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        time.sleep(1)
        server.kill()
        busy.wait()
        bench.add("start-killed", {"seconds": server.start()})
    finally:
        server.remove()


def at_scale(bench: Bench) -> None:
    """What partitions and idle connections cost, step by step."""
    with bench.server() as server, ExitStack() as open_connections:
        create_topics(server.address, ["one"], 1, {})
        sample(bench, server, "partitions", 0)
        made = 0
        for step in (500, 1000, 2000):
            create_topics(server.address, [f"many-{step}"], step - made, {})
            made = step
            sample(bench, server, "partitions", step)
        for step in (250, 500):
            for _ in range(250):
                sock = open_connections.enter_context(connect(server.address))
                sock.sendall(b"\x00\x00\x00\x0d\x00\x12\x00\x00\x00\x00\x00\x01\x00\x03idl")
                sock.recv(65_536)
            sample(bench, server, "connections", step)


def sample(bench: Bench, server: Process, row: str, count: int) -> None:
    time.sleep(2)
    before = cpu_s(server.pid)
    time.sleep(3)
    idle_cpu = (cpu_s(server.pid) - before) / 3
    trip = run_load("raw_loads", "round_trips", address=server.address, topic="one", count=2000)
    memory = pss_mb(server.pid)
    host, _, port = server.address.rpartition(":")
    assert first_answer(host, int(port), topic_count=1), "it still answers"
    figures = {"pss_mb": memory, "idle_cpu_share": idle_cpu, "trip_p50_ms": trip["p50_ms"]}
    bench.add(f"{row}-{count}", figures)


STAGES: dict[str, Callable[[Bench], None]] = {
    "client": with_client,
    "raw": with_batches,
    "synced": on_disk_before_the_answer,
    "latency": one_at_a_time,
    "start": from_start,
    "scale": at_scale,
}
