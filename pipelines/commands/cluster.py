"""`headwater cluster`: shows the nodes of a cluster and the state of its partitions."""

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import DifferencesFound, Output, shared_options, table
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.pipelines.watching.cluster_state import ClusterState

MIN_IN_SYNC = "min.insync.replicas"
PROBLEMS_MAX = 20
QUORUM_S = 5.0
"""Wait for the leader of the quorum; without one, a broker does not answer for longer."""
HEAD = ("NODE", "ADDRESS", "VOTE", "METADATA LAG", "LEADS", "REPLICAS", "IN SYNC")


@click.group()
def cluster() -> None:
    """Show the nodes of a cluster."""


@cluster.command()
@log_options
@shared_options
@click.pass_obj
def status(output: Output, address: LogAddress) -> None:
    """Show nodes, votes and replicas, and what is not well.

    The exit code is 4 if a node is away, or a partition is offline or not in sync on all its
    replicas.
    """
    state = run_until_signal(look(address))
    lines = [
        f"quorum  {state.quorum}",
        *table(HEAD, [tuple(asdict(each).values()) for each in state.nodes]),
        *state.problems[:PROBLEMS_MAX],
    ]
    if (more := len(state.problems) - PROBLEMS_MAX) > 0:
        lines.append(f"... and {more} more; --json has all")
    if state.problems:
        raise DifferencesFound("the cluster is not healthy", data=asdict(state), lines=lines)
    output.result(asdict(state), lines)


async def look(address: LogAddress) -> "ClusterState":
    from headwater.core_log.client.cluster_description import NO_QUORUM
    from headwater.pipelines.watching.cluster_state import state_of

    async with address.open() as log:
        found, topics = await log.describe_cluster(), await log.topics.all()
        least = await log.topics.config_of_each([each.name for each in topics], MIN_IN_SYNC)
        try:
            quorum = await asyncio.wait_for(log.describe_quorum(), QUORUM_S)
        except (TimeoutError, LogUnavailable):
            quorum = NO_QUORUM
        return state_of(
            found, quorum, topics, {name: int(value or 1) for name, value in least.items()}
        )
