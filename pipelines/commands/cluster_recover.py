"""`headwater cluster recover`: the last resort where the majority of a cluster is gone for good."""

from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

import click

from headwater.pipelines.terminal.output import Output, format_count, shared_options

if TYPE_CHECKING:
    from headwater.core_log.broker.lone_broker import LoneBrokerPlan
    from headwater.core_log.model.log import TopicPartition

NAMES_MAX = 20


@click.command()
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
