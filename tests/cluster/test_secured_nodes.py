"""Three brokers beyond loopback: killed in turn they lose nothing, and strangers stay out."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from scripts.owned_process import start_owned
from tests.certificates import Authority
from tests.cluster.links import NAMESPACES, can_have_namespaces, run

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "headwater.pipelines.cli"]
PORT, NODES = 9092, (1, 2, 3)
WAIT_S = 60
pytestmark = pytest.mark.skipif(
    not can_have_namespaces(), reason="a network of its own is for root only"
)


class Machines:
    """Addresses of three machines, in a network namespace of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.name = directory, f"secured-{os.getpid()}"
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")
        for node in NODES:
            run("ip", "-n", self.name, "addr", "add", f"{self.host(node)}/32", "dev", "lo")
        self.authority = Authority(directory)
        self.secret = directory / "cluster.secret"
        self.secret.write_text("s" * 40 + "\n")
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def host(self, node: int) -> str:
        return f"10.77.0.{node}"

    def within(self, command: Sequence[object]) -> list[str]:
        return ["nsenter", f"--net={NAMESPACES / self.name}", *map(str, command)]

    def command(self, node: int, *further: object) -> list[object]:
        file = self.authority.issue(f"node-{node}", address=self.host(node))
        security = {
            "sasl": "SCRAM-SHA-512,PLAIN",
            "tls.certificate_file": file,
            "tls.key_file": file,
            "tls.ca_file": self.authority.file,
        }
        settings = [f"security.{name}={value}" for name, value in security.items()]
        settings += [f"node_id={node}", "internal_partitions=2"]
        return [
            *(*PROGRAM, "broker", "--data", self.data(node)),
            *("--listen", f"{self.host(node)}:{PORT}", "--cluster-secret", self.secret),
            *(word for each in settings for word in ("--set", each)),
            *further,
        ]

    def data(self, node: int) -> Path:
        return self.directory / f"data-{node}"

    def start(self, node: int, *further: object) -> None:
        with (self.directory / f"node-{node}.log").open("ab") as output:
            command = self.within(self.command(node, *further))
            self._processes[node] = start_owned(command, cwd=PROJECT, stdout=output, stderr=output)

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def ask(self, *words: object, data: int = 1) -> subprocess.CompletedProcess[str]:
        """Runs a command until it succeeds, since a broker or a leader may be on its way."""
        return self.until([*PROGRAM, *words, "--data", self.data(data)])

    def until(self, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
        """Repeats it while it fails."""
        for _ in range(WAIT_S):
            done = self.once(command)
            if done.returncode == 0:
                return done
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")

    def once(self, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.within(command),
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        run("ip", "netns", "del", self.name)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.end()


def produce(machines: Machines, value: str, *, data: int) -> None:
    source = machines.directory / "values"
    source.write_text(f"{value}\n")
    machines.until(
        ["sh", "-c", f"{' '.join(PROGRAM)} produce t --data {machines.data(data)} < {source}"]
    )


def test_three_secured_brokers_lose_nothing_while_each_is_killed(machines: Machines) -> None:
    first = f"{machines.host(1)}:{PORT}"
    machines.start(1, "--begin")
    machines.ask("topics", "ls")
    for node in (2, 3):
        machines.start(node, "--join", first)
    machines.ask("cluster", "status", data=3)
    machines.ask("topics", "create", "t", "--config", "min.insync.replicas=2")
    machines.ask("cluster", "status")

    for killed, other in ((1, 2), (2, 3), (3, 1)):
        machines.kill(killed)
        produce(machines, f"without {killed}", data=other)
        machines.start(killed)
        machines.ask("cluster", "status", data=killed)

    told = machines.ask("tail", "t", "--from", "earliest", "--count", "3", "--no-follow", data=2)
    assert [f"without {node}" in told.stdout for node in NODES] == [True] * 3


def test_a_broker_with_another_secret_is_not_let_in(machines: Machines) -> None:
    machines.start(1, "--begin")
    machines.ask("topics", "ls")
    machines.secret = machines.directory / "other.secret"
    machines.secret.write_text("t" * 40 + "\n")

    refused = machines.once(machines.command(2, "--join", f"{machines.host(1)}:{PORT}"))

    assert refused.returncode == 2
    assert "does not accept this one" in refused.stderr
    assert "t" * 40 not in refused.stderr


@pytest.mark.parametrize(
    ("further", "words"),
    [((), "does not begin a cluster beyond loopback by itself"), (("--begin",), "")],
)
def test_an_empty_directory_begins_a_cluster_only_when_told(
    machines: Machines, further: tuple[str, ...], words: str
) -> None:
    if not further:
        refused = machines.once(machines.command(1))
        assert refused.returncode == 2 and words in refused.stderr
        return
    machines.start(1, *further)
    machines.ask("topics", "ls")
    machines.kill(1)

    again = machines.once(machines.command(1, *further))

    assert again.returncode == 2
    assert "holds a cluster already" in again.stderr
