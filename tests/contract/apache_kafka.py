"""One KRaft node of Apache Kafka, for the tests that hold our suites against it."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.free_port import free_ports
from scripts.owned_process import start_owned

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={directory}/data
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=100
auto.create.topics.enable=false
"""
START_S_MAX = 240
PROPERTIES_FILE = "server.properties"


class Node:
    """One node, which can be killed and comes back on the same files under the same address."""

    def __init__(self, directory: Path, jars: str, port: int) -> None:
        self._directory, self._port = directory, port
        self._command = [*java(jars), "kafka.Kafka", directory / PROPERTIES_FILE]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._directory / "kafka.log").open("ab") as output:
            self._process = start_owned(self._command, stdout=output, stderr=output)
        wait_for(self._port, self._process)

    def kill(self) -> None:
        assert self._process is not None, "what is killed has been started"
        self._process.kill()
        self._process.wait()


def java(jars: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return ["java", "-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*", quiet]


@contextmanager
def run_apache_kafka(directory: Path) -> Iterator[str]:
    """Yields HOST:PORT; HEADWATER_KAFKA names a running node instead."""
    running = os.environ.get("HEADWATER_KAFKA")
    if running:
        yield running
        return
    with mortal_node(directory) as (address, _):
        yield address


@contextmanager
def mortal_node(directory: Path) -> Iterator[tuple[str, Node]]:
    """HOST:PORT of a node of our own, and the node."""
    broker, controller = free_ports(2)
    text = PROPERTIES.format(broker=broker, controller=controller, directory=directory)
    with running_node(directory, text, port=broker) as node:
        yield f"127.0.0.1:{broker}", node


@contextmanager
def running_node(directory: Path, text: str, *formatting: str, port: int) -> Iterator[Node]:
    """A node with these properties that listens at `port`; `formatting` is what it stores first."""
    jars = os.environ.get("HEADWATER_KAFKA_JARS")
    if not jars:
        pytest.skip("Apache Kafka is not here: HEADWATER_KAFKA_JARS=$(scripts/fetch_kafka.sh)")
    properties = directory / PROPERTIES_FILE
    properties.write_text(text)
    format_it = [*java(jars), "kafka.tools.StorageTool", "format", "--standalone"]
    identity = ["-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(properties)]
    subprocess.run([*format_it, *identity, *formatting], check=True, capture_output=True)
    node = Node(directory, jars, port)
    try:
        node.start()
        yield node
    finally:
        node.kill()


def wait_for(port: int, node: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        assert node.poll() is None, "Apache Kafka keeps running"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Apache Kafka does not listen")
