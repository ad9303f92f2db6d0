"""`headwater cluster`: the state of a cluster, its users, and its recovery without a majority."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError, LogUnavailable
from headwater.pipelines.commands.cluster_acls import acls
from headwater.pipelines.commands.cluster_moves import MOVES
from headwater.pipelines.commands.cluster_quotas import quotas
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import (
    DifferencesFound,
    Output,
    format_count,
    shared_options,
    table,
)
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headwater.core_log.broker.lone_broker import LoneBrokerPlan
    from headwater.core_log.model.log import TopicPartition
    from headwater.pipelines.watching.cluster_state import ClusterState

PROBLEMS_MAX = 20
SECRET_BYTES = 32
WAIT_S = 1.0
HEAD = ("NODE", "ADDRESS", "VOTE", "METADATA LAG", "LEADS", "REPLICAS", "IN SYNC")


@click.group()
def cluster() -> None:
    """Show the nodes of a cluster, move partitions, and manage users, ACLs and quotas."""


for _command in (acls, quotas, *MOVES):
    cluster.add_command(_command)


@cluster.command()
@click.option("--wait", is_flag=True, help="Wait until all is well and nothing moves.")
@log_options
@shared_options
@click.pass_obj
def status(output: Output, wait: bool, address: LogAddress) -> None:
    """Show nodes, votes and replicas, and what is not well.

    With --wait a cluster that does not answer yet is waited for, too. The exit code is 4 if a node
    is away, or a partition is offline or not in sync on all its replicas.
    """
    from headwater.pipelines.watching.cluster_state import shorten

    state = run_until_signal(look(address) if not wait else look_until_well(output, address))
    problems = shorten(state.problems)
    lines = [
        f"quorum  {state.quorum}",
        *([] if state.metadata_version is None else [f"metadata version {state.metadata_version}"]),
        *table(HEAD, [tuple(asdict(each).values()) for each in state.nodes]),
        *state.moves[:PROBLEMS_MAX],
        *state.throttles[:PROBLEMS_MAX],
        *problems[:PROBLEMS_MAX],
    ]
    if (more := len(problems) - PROBLEMS_MAX) > 0:
        lines.append(f"... and {more} more; --json has all")
    if state.problems:
        raise DifferencesFound("the cluster is not healthy", data=asdict(state), lines=lines)
    output.result(asdict(state), lines)


async def look_until_well(output: Output, address: LogAddress) -> "ClusterState":
    """A cluster that does not answer is not well yet."""
    is_told = False
    while True:
        try:
            state = await look(address)
            if not state.problems and not state.moves:
                return state
        except LogUnavailable as error:
            if not is_told:
                output.note(f"{error}; waiting")
            is_told = True
        await asyncio.sleep(WAIT_S)


async def look(address: LogAddress) -> "ClusterState":
    from headwater.pipelines.watching.cluster_state import read_state

    async with address.open() as log:
        return await read_state(log, await log.topics.all())


@cluster.command()
@shared_options
@click.pass_obj
def secret(output: Output) -> None:
    """Print a new secret by which the brokers of a cluster know each other.

    Every broker gets the same file by --cluster-secret; keep it readable by its user only.
    """
    made = secrets.token_urlsafe(SECRET_BYTES)
    output.result({"secret": made}, [made])


@cluster.group()
def users() -> None:
    """Add, remove and list users, who authenticate by SASL."""


@users.command("list")
@log_options
@shared_options
@click.pass_obj
def list_users(output: Output, address: LogAddress) -> None:
    """List users with their mechanisms and rounds of hashing."""
    found = run_until_signal(_all_users(address))
    rows = [(user, name, rounds) for user, each in found.items() for name, rounds in each.items()]
    output.result(found, table(("USER", "MECHANISM", "ROUNDS"), rows))


@users.command()
@click.argument("user")
@click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"]),
    default="SCRAM-SHA-512",
    show_default=True,
    help="Mechanism for which the password is stored; PLAIN takes either.",
)
@click.option(
    "--password-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the password in its first line, instead of a question.",
)
@log_options
@shared_options
@click.pass_obj
def add(
    output: Output, user: str, mechanism: str, password_file: Path | None, address: LogAddress
) -> None:
    """Add USER, or change its password.

    The password is hashed here, and does not leave this process.
    """
    password = ask_password(password_file)
    run_until_signal(_set_password(address, user, password, mechanism))
    output.result({"user": user, "mechanism": mechanism}, [f"{user} can log in by {mechanism}"])


@users.command()
@click.argument("user")
@log_options
@shared_options
@click.pass_obj
def remove(output: Output, user: str, address: LogAddress) -> None:
    """Remove USER. Connections that it has stay open."""
    run_until_signal(_remove_user(address, user))
    output.result({"user": user}, [f"{user} is removed"])


def ask_password(file: Path | None) -> str:
    if file is not None:
        lines = file.read_text().splitlines()
        password = lines[0] if lines else ""
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not password:
        raise ConfigError("the password is empty", hint="take a long one")
    return password


async def _all_users(address: LogAddress) -> "Mapping[str, Mapping[str, int]]":
    async with address.open() as log:
        return await log.users.all()


async def _set_password(address: LogAddress, user: str, password: str, mechanism: str) -> None:
    async with address.open() as log:
        await log.users.set_password(user, password, mechanism)


async def _remove_user(address: LogAddress, user: str) -> None:
    async with address.open() as log:
        await log.users.remove(user)


NAMES_MAX = 20


@cluster.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--unsafe", is_flag=True, help="Do it, although acknowledged records may be lost.")
@shared_options
@click.pass_obj
def recover(output: Output, directory: Path, unsafe: bool) -> None:
    """Make the broker of the data directory DIR the only one of its cluster.

    For the day on which the disks of most voters are lost, so that nobody can decide any more. The
    broker must not run. It then leads every partition with what it has, and the others are removed.
    Without --unsafe only what would become of each partition is shown.

    Records that the others had acknowledged without this broker are lost, which it cannot know.
    Brokers that come back with their disks stay a cluster of their own: wipe them, and let them
    join.
    """
    from headwater.core_log.broker.lone_broker import lone_broker
    from headwater.core_log.foundation.clock import SystemClock
    from headwater.core_log.storage.files import OsFiles

    random = SystemRandom()
    with lone_broker(directory, files=OsFiles(), clock=SystemClock(), random=random) as broker:
        plan = broker.plan
        if unsafe:
            broker.carry_out()
    output.result(
        {
            "broker": plan.node_id,
            "removed": plan.others,
            "in_sync": [_named(each) for each in plan.in_sync],
            "behind": [_named(each) for each in plan.behind],
            "empty": [_named(each) for each in plan.empty],
            "is_done": unsafe,
        },
        [*_plan_lines(plan), *_next_lines(directory, is_done=unsafe)],
    )


def _plan_lines(plan: "LoneBrokerPlan") -> list[str]:
    others = ", ".join(map(str, plan.others)) or "none"
    return [
        f"broker {plan.node_id} alone; removed are the brokers {others}",
        *_listed("in sync here when this broker last heard of the cluster", plan.in_sync, 0),
        *_listed("not in sync here, acknowledged records are missing", plan.behind, NAMES_MAX),
        *_listed("without a replica here, begin anew and empty", plan.empty, NAMES_MAX),
    ]


def _listed(what: str, partitions: "Sequence[TopicPartition]", names_max: int) -> list[str]:
    if not partitions:
        return []
    names = ", ".join(map(_named, partitions[:names_max]))
    more = ", ..." if names and len(partitions) > names_max else ""
    return [
        f"{format_count(len(partitions), 'partition')} {what}{': ' if names else ''}{names}{more}"
    ]


def _next_lines(directory: Path, *, is_done: bool) -> list[str]:
    if not is_done:
        return ["nothing was changed; --unsafe does it"]
    return [
        f"headwater broker --data {directory}, with the former settings and without --join",
        "headwater recover FILE, for each pipeline: it reads the tables again and rebuilds targets",
    ]


def _named(at: "TopicPartition") -> str:
    return f"{at.topic}-{at.partition}"
