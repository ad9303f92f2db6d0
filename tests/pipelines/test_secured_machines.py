"""Runs on three machines whose logs form a cluster beyond loopback, with certificates and a secret:
one is killed, and what arrives is whole, once."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.connectors.generator.history import truth
from tests.cluster.links import can_have_namespaces
from tests.cluster.secured_machines import NODES, PORT, PROGRAM, Machines
from tests.pipelines.commands.test_run import until
from tests.pipelines.known_history import PIPELINE, SETTINGS, audit, count_changes, is_whole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_have_namespaces(), reason="a network of its own is for root only"),
]

TOMBSTONE = "-"


class Pipelines(Machines):
    """On each machine a run of the same pipeline, whose log is a broker."""

    def data(self, node: int) -> Path:
        return self.directory / str(node) / "data"

    def file(self, node: int) -> Path:
        """The certificates and the secret lie beside the pipeline file."""
        directory = self.directory / str(node)
        directory.mkdir(exist_ok=True)
        made = self.authority.issue(f"node-{node}", address=self.host(node))
        (directory / "node.pem").write_bytes(made.read_bytes())
        (directory / "ca.pem").write_bytes(self.authority.file.read_bytes())
        (directory / "cluster.secret").write_bytes(self.secret.read_bytes())
        cluster = {
            "node_id": node,
            "secret": "cluster.secret",
            "security": {
                "sasl": "SCRAM-SHA-512",
                "tls": {
                    "certificate_file": "node.pem",
                    "key_file": "node.pem",
                    "ca_file": "ca.pem",
                },
            },
        }
        if node != 1:
            cluster["join"] = [f"{self.host(1)}:{PORT}"]
        log = {
            "path": "data",
            "listen": f"{self.host(node)}:{PORT}",
            "cleanup": "delete",
            "cluster": cluster,
        }
        file = directory / "pipeline.yaml"
        file.write_text(PIPELINE.format(at=self.directory, log=json.dumps(log), rate=150))
        return file

    def start_run(self, node: int, *further: object) -> None:
        self.run(node, [*PROGRAM, "run", self.file(node), "-q", *further])

    def tasks(self, node: int) -> dict[str, dict[str, Any]]:
        """What the status on a machine says of each task."""
        ran = self.once([*PROGRAM, "status", "--json", "-f", self.file(node)])
        if ran.returncode != 0:
            return {}
        tasks: dict[str, dict[str, Any]] = json.loads(ran.stdout)["data"]["pipelines"].get(
            "shop", {"tasks": {}}
        )["tasks"]
        return tasks

    def until_shared(self, seen_from: int, count: int) -> None:
        """Until so many runs have all of the tasks."""
        until(lambda: is_shared(self.tasks(seen_from), count))

    def changes(self) -> Counter[bytes]:
        """How often each record of a table is in the log, read with a command of a machine."""
        found = Counter[bytes]()
        for table in truth(SETTINGS):
            words = (f"shop.{table}", "--from", "earliest", "--no-follow", "--raw")
            told = self.until([*PROGRAM, "tail", *words, "-f", self.file(1)])
            values = (line.split("\t", 3)[3] for line in told.stdout.splitlines())
            found.update(each.encode() for each in values if each != TOMBSTONE)
        return found


def is_shared(tasks: dict[str, dict[str, Any]], count: int) -> bool:
    fine = [each for each in tasks.values() if each["state"] in ("running", "done")]
    return len(fine) == 3 and len({each["member"] for each in fine}) == count


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Pipelines]:
    made = Pipelines(tmp_path)
    yield made
    made.end()


def test_runs_beyond_loopback_share_their_tasks_and_go_on_without_one(
    machines: Pipelines,
) -> None:
    machines.start_run(1, "--begin")
    for node in NODES[1:]:
        machines.start_run(node)
    machines.until_shared(1, 3)

    machines.kill(2)
    machines.until([*PROGRAM, "topics", "ls", "-f", machines.file(2)])  # of the other brokers
    machines.until_shared(3, 2)
    moved = count_changes(machines.directory)
    until(lambda: count_changes(machines.directory) > moved or is_whole(machines.directory))
    machines.start_run(2)

    until(lambda: is_whole(machines.directory))
    audit(machines.directory, machines.changes())


def test_a_run_with_another_secret_is_not_let_in(machines: Pipelines) -> None:
    machines.start_run(1, "--begin")
    machines.ask("topics", "ls")
    machines.secret = machines.directory / "other.secret"
    machines.secret.write_text("t" * 40 + "\n")

    refused = machines.once([*PROGRAM, "run", machines.file(2)])

    assert refused.returncode == 2
    assert "does not accept this one" in refused.stderr
    assert "t" * 40 not in refused.stderr


def test_an_empty_directory_begins_a_cluster_only_when_told_and_only_once(
    machines: Pipelines,
) -> None:
    untold = machines.once([*PROGRAM, "run", machines.file(1)])
    machines.start_run(1, "--begin")
    machines.ask("topics", "ls")
    machines.kill(1)
    again = machines.once([*PROGRAM, "run", machines.file(1), "--begin"])

    assert untold.returncode == 2
    assert "does not begin a cluster beyond loopback by itself" in untold.stderr
    assert again.returncode == 2
    assert "holds a cluster already" in again.stderr


def test_files_of_the_log_are_private_and_those_of_sinks_are_not(machines: Pipelines) -> None:
    machines.start_run(1, "--begin")
    until(lambda: is_whole(machines.directory))

    metadata = machines.data(1) / "log" / "__cluster_metadata-0"
    private = [*metadata.iterdir(), *machines.data(1).glob("log/*/*.log")]
    assert {each.stat().st_mode & 0o077 for each in private} == {0}
    assert (machines.directory / "mirror.db").stat().st_mode & 0o044 == 0o044
