"""sarama's functional tests pass against five of our brokers behind toxiproxy, which cuts and slows
their links, but for what is explained."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from scripts.free_port import free_port
from scripts.owned_process import start_owned
from tests.cluster.nodes import HeadwaterNodes
from tests.cluster.scenario import Play
from tests.compat.foreign_suite import check_outcome, explained_in, outcome_of_go
from tests.compat.java_programs import directory_from

pytestmark = [
    pytest.mark.compat,
    pytest.mark.long("compat"),
]

HERE = Path(__file__).parent / "sarama"
PASSED_MIN = 130
NODES = range(1, 6)
PROXIES = {node: f"127.0.0.1:{29090 + node}" for node in NODES}
"""Clients are told these addresses, which the suite takes for granted."""
KAFKA_VERSION = "4.3.1"
LOOK_S = 0.2
DOCKER = """#!{python}
import socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({place!r})
    asked.sendall(" ".join(sys.argv[1:]).encode() + b"\\n")
    sys.stdout.write(asked.makefile().read())
"""


class ProxiedNodes(HeadwaterNodes):
    """The proxies also carry what nodes send each other: a fault that the suite asks for meets them
    all."""

    def command(self, node: int) -> Sequence[object]:
        return [*super().command(node), "--advertise", PROXIES[node]]


@contextmanager
def proxies(program: Path, nodes: ProxiedNodes, directory: Path) -> Iterator[str]:
    """Yields the address at which the faults are asked for."""
    config, port = directory / "proxies.json", free_port()
    config.write_text(
        json.dumps(
            [
                {"name": f"kafka{node}", "listen": at, "upstream": nodes.addresses[node]}
                for node, at in PROXIES.items()
            ]
        )
    )
    command = [program, "-host", "127.0.0.1", "-port", port, "-config", config]
    with (directory / "toxiproxy.log").open("wb") as output:
        process = start_owned(command, stdout=output, stderr=output)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def compose(nodes: ProxiedNodes, words: Sequence[str]) -> str:
    """Does what `docker compose start kafka-1` would, and returns what it would print."""
    _, what, *_, service = words
    node = int(service.removeprefix("kafka-"))
    match what:
        case "stop":
            nodes.stop(node)
        case "start" if node not in nodes.awake:
            nodes.start(node)
        case "start":
            pass
        case "logs":
            return nodes.output(node).read_text()
        case _:
            raise AssertionError(f"the suite asks docker for something else: {words}")
    return ""


def compose_until_end(
    nodes: ProxiedNodes, suite: "subprocess.Popen[bytes]", listener: socket.socket
) -> None:
    """Answers the program that stands in docker's place."""
    listener.settimeout(LOOK_S)
    while suite.poll() is None:
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection:
            words = connection.makefile().readline().split()
            connection.sendall(compose(nodes, words).encode())


def run_suite(program: Path, nodes: ProxiedNodes, toxiproxy: str, directory: Path) -> str:
    """Returns what it printed; stops and starts nodes for it in the place of docker."""
    docker, place, said = directory / "docker", directory / "asked", directory / "said"
    docker.write_text(DOCKER.format(python=sys.executable, place=str(place)))
    docker.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listener, said.open("wb") as output:
        listener.bind(str(place))
        listener.listen()
        suite = start_owned(
            [program, "-test.v", "-test.timeout=60m"],
            cwd=directory,
            env=os.environ
            | {
                "KAFKA_VERSION": KAFKA_VERSION,
                "TOXIPROXY_ADDR": toxiproxy,
                "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}",
            },
            stdout=output,
            stderr=output,
        )
        try:
            compose_until_end(nodes, suite, listener)
        finally:
            suite.kill()
            suite.wait()
    return said.read_text()


def test_its_functional_tests_pass(tmp_path: Path) -> None:
    programs = directory_from("fetch_sarama.sh", "HEADWATER_SARAMA")
    nodes = ProxiedNodes(tmp_path, racks={node: str(node) for node in NODES}, count=len(NODES))
    try:
        with proxies(programs / "toxiproxy", nodes, tmp_path) as toxiproxy:
            for node in NODES:
                nodes.start(node)
            asyncio.run(Play(nodes, Random(0)).wait_in_sync())
            said = run_suite(programs / "sarama.test", nodes, toxiproxy, tmp_path)
            nodes.check()
    finally:
        nodes.end()

    check_outcome(
        outcome_of_go(said), explained_in(HERE / "not_passing.txt"), passed_min=PASSED_MIN
    )
