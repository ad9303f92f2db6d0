"""`headwater cluster move`, `drain`, `remove`, `rebalance`, `unthrottle` and `elect`: which brokers
have which partitions."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, shared_options, table
from headwater.pipelines.terminal.quantities import size_text
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.pipelines.watching.moved_replicas import Assignments, CopyPace

HEAD = ("PARTITION", "REPLICAS")
LOOK_S = 0.5
Options = Callable[..., object]


def pace_options(command: Options) -> Options:
    """Options that say how fast replicas are copied."""
    options = (
        click.option(
            "--at-once",
            type=click.IntRange(min=1),
            default=10,
            show_default=True,
            help="How many partitions are copied at the same time.",
        ),
        click.option(
            "--rate",
            type=click.IntRange(min=1),
            metavar="BYTES_PER_S",
            help="Bytes per second that each broker copies for these partitions, until they are "
            "moved.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("place", metavar="TOPIC[-PARTITION]")
@click.option("--to", metavar="N,N,...", help="Brokers of the replicas; the first shall lead.")
@click.option("--cancel", is_flag=True, help="Leave the partitions where they were.")
@pace_options
@log_options
@shared_options
@click.pass_obj
def move(
    output: Output,
    place: str,
    to: str | None,
    cancel: bool,
    at_once: int,
    rate: int | None,
    address: LogAddress,
) -> None:
    """Move a topic or one partition to other brokers.

    More or fewer brokers than now change the number of replicas. With several partitions each
    begins with another of the brokers. A move goes on if the command ends before it is over, and so
    does its rate: give the command again, or use `headwater cluster unthrottle`.
    """
    if (to is None) != cancel:
        raise ConfigError(
            "the target of the move is missing", hint="use either --to 1,2,3 or --cancel"
        )
    replicas = parse_brokers(to or "")

    async def work() -> "Assignments":
        from headwater.pipelines.watching import moved_replicas

        async with address.open() as log:
            if cancel:
                moves = await log.brokers.moves()
                found = [at for at in await moved_replicas.find_places(log, place) if at in moves]
                await log.brokers.move(dict.fromkeys(found))
                await moved_replicas.unthrottle(log, found)
                now = await moved_replicas.assignments_of(log)
                return {at: now[at] for at in found}
            changes = await moved_replicas.plan_move(log, place, replicas)
            pace = pace_of(at_once, rate)
            await moved_replicas.carry_out(log, changes, pace=pace, note=output.note)
            await log.brokers.elect_preferred()
            return changes

    show(output, run_until_signal(work()))


@click.command()
@click.argument("broker", type=int)
@pace_options
@log_options
@shared_options
@click.pass_obj
def drain(output: Output, broker: int, at_once: int, rate: int | None, address: LogAddress) -> None:
    """Move all replicas of a broker to others.

    Refused if a partition has no other broker to go to. Stop the broker soon after, or remove it:
    new topics may get replicas there.
    """

    async def work() -> "Assignments":
        async with address.open() as log:
            return await drain_broker(log, broker, pace_of(at_once, rate), output)

    show(output, run_until_signal(work()))


@click.command()
@click.argument("broker", type=int)
@pace_options
@log_options
@shared_options
@click.pass_obj
def remove(
    output: Output, broker: int, at_once: int, rate: int | None, address: LogAddress
) -> None:
    """Remove a broker from the cluster for good.

    Moves its replicas to others, waits until you have stopped it, takes its vote, and unregisters
    it. May be repeated until it is done.
    """

    async def work() -> None:
        async with address.open() as log:
            await remove_broker(log, broker, pace_of(at_once, rate), output)

    run_until_signal(work())
    output.result({"removed": broker}, [f"broker {broker} is removed"])


@click.command()
@click.option("--plan", is_flag=True, help="Only show what would be moved.")
@pace_options
@log_options
@shared_options
@click.pass_obj
def rebalance(
    output: Output, plan: bool, at_once: int, rate: int | None, address: LogAddress
) -> None:
    """Spread replicas and leaders evenly over the brokers that are there."""

    async def work() -> "Assignments":
        from headwater.pipelines.watching import moved_replicas

        async with address.open() as log:
            changes = await moved_replicas.plan_balance(log)
            if not plan:
                pace = pace_of(at_once, rate)
                await moved_replicas.carry_out(log, changes, pace=pace, note=output.note)
                await log.brokers.elect_preferred()
            return changes

    show(output, run_until_signal(work()))


@click.command()
@log_options
@shared_options
@click.pass_obj
def unthrottle(output: Output, address: LogAddress) -> None:
    """Remove all rates at which replicas are copied.

    Moves under way go on as fast as they can. Takes the rates of each broker and the lists of
    throttled replicas of each topic, whoever has set them; a default rate of all brokers stays.
    """

    async def work() -> tuple[Sequence[str], Mapping[int, int]]:
        from headwater.pipelines.watching.moved_replicas import remove_all

        async with address.open() as log:
            return await remove_all(log)

    topics, rates = run_until_signal(work())
    lines = [f"{name} is copied without a rate" for name in topics]
    lines += [f"broker {node} had {size_text(each)} per second" for node, each in rates.items()]
    found = {"topics": topics, "rates": {str(node): each for node, each in rates.items()}}
    output.result(found, lines or ["nothing is throttled"])


@click.command()
@log_options
@shared_options
@click.pass_obj
def elect(output: Output, address: LogAddress) -> None:
    """Let the first replica of each partition lead again.

    The controller does so by itself every five minutes.
    """

    async def work() -> dict[str, str]:
        async with address.open() as log:
            refused = await log.brokers.elect_preferred()
            return {f"{at.topic}-{at.partition}": why for at, why in refused.items()}

    refused = run_until_signal(work())
    lines = [f"{name}: {why}" for name, why in refused.items()]
    output.result({"refused": refused}, lines or ["every first replica leads"])


MOVES = (move, drain, remove, rebalance, unthrottle, elect)


def parse_brokers(text: str) -> tuple[int, ...]:
    words = [each.strip() for each in text.split(",") if each.strip()]
    if not all(each.isdecimal() for each in words):
        raise ConfigError("brokers are numbers with commas between them", given=text)
    return tuple(map(int, words))


def show(output: Output, changes: "Assignments") -> None:
    found = {f"{at.topic}-{at.partition}": each for at, each in sorted(changes.items())}
    rows = [(name, ",".join(map(str, each))) for name, each in found.items()]
    output.result(found, table(HEAD, rows) if rows else ["nothing is to be moved"])


def pace_of(at_once: int, rate: int | None) -> "CopyPace":
    from headwater.pipelines.watching.moved_replicas import CopyPace

    return CopyPace(at_once, rate)


async def drain_broker(
    log: "KafkaLog", broker: int, pace: "CopyPace", output: Output
) -> "Assignments":
    from headwater.pipelines.watching import moved_replicas

    changes = await moved_replicas.plan_drain(log, broker)
    await moved_replicas.carry_out(log, changes, pace=pace, note=output.note)
    return changes


async def remove_broker(log: "KafkaLog", broker: int, pace: "CopyPace", output: Output) -> None:
    is_asked = False
    while True:
        await drain_broker(log, broker, pace, output)
        alive = {each.node_id for each in (await log.describe_cluster()).brokers}
        if broker not in alive:
            break
        if alive == {broker}:
            raise LogRejected("the last broker cannot be removed", broker=broker)
        if not is_asked:
            is_asked = True
            output.note(f"broker {broker} is empty: stop it now; this command waits for that")
        await asyncio.sleep(LOOK_S)
    quorum = await log.describe_quorum()
    if broker in quorum.voters:
        await log.brokers.remove_voter(broker, quorum.directories[broker])
    await log.brokers.unregister(broker)
