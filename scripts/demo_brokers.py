"""Three brokers of a demo, started by the commands of docs/cluster.md."""

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from scripts.free_port import free_ports
from scripts.owned_process import start_owned
from scripts.shop_pipeline import HEADWATER

NODES = (1, 2, 3)
FIRST = NODES[0]
STOP_S_MAX = 30


class DemoBrokers:
    """Each has its own directory, and a loopback port that is free."""

    def __init__(
        self, show_command: Callable[..., None], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self._show_command, self._directory = show_command, directory
        self._environment = environment
        ports = free_ports(len(NODES))
        self.addresses = {
            node: f"127.0.0.1:{port}" for node, port in zip(NODES, ports, strict=True)
        }
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """At the end all of them stop."""
        try:
            yield
        finally:
            for process in self._processes.values():
                process.terminate()
            for process in self._processes.values():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_S_MAX)
                process.kill()
                process.wait()

    def start_all(self) -> None:
        for node in NODES:
            self.start(node, join=None if node == FIRST else self.addresses[FIRST])

    def start(self, node: int, *, join: str | None = None) -> None:
        """One that comes back finds the others by its directory."""
        arguments = ["broker", "--data", f"d{node}", "--listen", self.addresses[node]]
        if node != FIRST:
            arguments += ["--set", f"node_id={node}"]
        if join is not None:
            arguments += ["--join", join]
        self._show_command("headwater", *arguments)
        with self._output(node).open("ab") as output:
            self._processes[node] = start_owned(
                [*HEADWATER, *arguments],
                cwd=self._directory,
                env=self._environment,
                stdout=output,
                stderr=output,
            )

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        if process.poll() is not None:
            words = self._output(node).read_text(errors="replace")[-2_000:]
            raise SystemExit(f"broker {node} ended by itself: {words}")
        self._show_command("kill", "-9", str(process.pid))
        process.kill()
        process.wait()

    def voters(self) -> Sequence[int]:
        """The nodes that vote and are there; none while something is not well."""
        bootstrap = ",".join(self.addresses.values())
        asked = subprocess.run(
            [*HEADWATER, "cluster", "status", "--json", "--bootstrap", bootstrap],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            check=False,
        )
        if asked.returncode != 0:
            return []
        nodes = json.loads(asked.stdout)["data"]["nodes"]
        return [each["node"] for each in nodes if each["vote"] in ("leader", "voter")]

    def _output(self, node: int) -> Path:
        return self._directory / f"broker-{node}.log"
