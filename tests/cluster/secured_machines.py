"""Three machines beyond loopback whose brokers have certificates and a cluster secret."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.owned_process import start_owned
from tests.certificates import Authority
from tests.cluster.links import NAMESPACES, run

PROJECT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "headwater.pipelines.cli"]
PORT, NODES = 9092, (1, 2, 3)
WAIT_S = 60


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
        self.run(node, self.command(node, *further))

    def run(self, node: int, command: Sequence[object]) -> None:
        """Starts what runs on the machine until it is killed."""
        with (self.directory / f"node-{node}.log").open("ab") as output:
            self._processes[node] = start_owned(
                self.within(command), cwd=PROJECT, stdout=output, stderr=output
            )

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
