"""Three brokers beyond loopback: killed in turn they lose nothing, and strangers stay out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.links import can_have_namespaces
from tests.cluster.secured_machines import NODES, PORT, PROGRAM, Machines

pytestmark = pytest.mark.skipif(
    not can_have_namespaces(), reason="a network of its own is for root only"
)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_broker_with_another_secret_is_not_let_in(machines: Machines) -> None:
    machines.start(1, "--begin")
    machines.ask("topics", "ls")
    machines.secret = machines.directory / "other.secret"
    machines.secret.write_text("t" * 40 + "\n")

    refused = machines.once(machines.command(2, "--join", f"{machines.host(1)}:{PORT}"))

    assert refused.returncode == 2
    assert "does not accept this one" in refused.stderr
    assert "t" * 40 not in refused.stderr


@pytest.mark.slow
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
