"""`headwater groups`: shows consumer groups and resets their offsets."""

from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import confirm, yes_option
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, format_count, shared_options, table
from headwater.pipelines.terminal.signals import run_until_signal
from headwater.pipelines.terminal.starting_points import resolve

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.group_admin import GroupDescription
    from headwater.core_log.model.log import TopicPartition

GROUP = click.argument("group")


@click.group()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


@groups.command()
@log_options
@shared_options
@click.pass_obj
def ls(output: Output, address: LogAddress) -> None:
    """List consumer groups."""

    async def work() -> list[dict[str, object]]:
        async with address.open() as log:
            found = await log.groups.all()
            return [{"group": g.name, "state": g.state, "protocol": g.protocol} for g in found]

    found = run_until_signal(work())
    rows = [tuple(row.values()) for row in found]
    output.result(found, table(("GROUP", "STATE", "PROTOCOL"), rows))


@groups.command()
@GROUP
@log_options
@shared_options
@click.pass_obj
def describe(output: Output, group: str, address: LogAddress) -> None:
    """Show the members of GROUP, what each has committed, and how far behind it is."""

    async def work() -> "tuple[GroupDescription, list[dict[str, object]]]":
        from headwater.pipelines.watching.topics_view import progress

        async with address.open() as log:
            found = await log.groups.describe(group)
            return found, await progress(log, found)

    found, rows = run_until_signal(work())
    facts = {
        "group": found.name,
        "state": found.state,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
            }
            for member in found.members
        ],
        "partitions": rows,
    }
    lines = [f"{found.name}  {found.state}  {format_count(len(found.members), 'member')}"]
    head = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT")
    output.result(facts, lines + table(head, [tuple(row.values()) for row in rows]))


@groups.command()
@GROUP
@click.option("--topic", required=True, help="The topic whose offsets are set.")
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option(
    "--to",
    "place",
    metavar="PLACE",
    required=True,
    help="earliest, latest, an offset (42), offsets per partition (0:42,1:7), a time "
    "(2026-01-31T12:00) or an age (10m).",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@log_options
@shared_options
@click.pass_obj
def reset(
    output: Output,
    group: str,
    topic: str,
    partition: int | None,
    place: str,
    dry_run: bool,
    address: LogAddress,
) -> None:
    """Set the offsets of GROUP in TOPIC. Its consumers must be stopped first."""
    rows = run_until_signal(move(address, group, topic, partition, place, dry_run))
    head = ("TOPIC", "PARTITION", "FROM", "TO")
    output.result(rows, table(head, [tuple(row.values()) for row in rows]))
    if dry_run:
        output.note("nothing was changed")


async def move(
    address: LogAddress, group: str, topic: str, partition: int | None, place: str, dry_run: bool
) -> list[dict[str, object]]:
    from headwater.pipelines.commands.tail import partitions_of
    from headwater.pipelines.journal.audit import audit

    async with address.open() as log:
        await refuse_members(log, group)
        partitions: list[TopicPartition] = await partitions_of(log, topic, partition)
        before = await log.committed_offsets(group)
        after = await resolve(log, partitions, place, now_ms=unix_ms())
        if not dry_run:
            async with audit(log, "groups reset", group, {"topic": topic, "to": place}):
                await log.groups.reset(group, after)
    return [
        {"topic": p.topic, "partition": p.partition, "from": before.get(p), "to": offset}
        for p, offset in sorted(after.items())
    ]


async def refuse_members(log: "KafkaLog", group: str) -> None:
    """Refuses: a running consumer would not notice, and would commit its own offset over the new
    one."""
    known = {found.name for found in await log.groups.all()}
    if group not in known:
        return  # a group may get its offsets before it first reads
    members = (await log.groups.describe(group)).members
    if members:
        raise ConfigError(
            "the group has running consumers",
            group=group,
            members=len(members),
            hint="stop its consumers first",
        )


@groups.command()
@click.argument("groups", metavar="GROUP...", nargs=-1, required=True)
@yes_option
@log_options
@shared_options
@click.pass_obj
def delete(output: Output, groups: tuple[str, ...], yes: bool, address: LogAddress) -> None:
    """Delete groups with their committed offsets. Their consumers must be stopped first."""
    confirm(f"delete {', '.join(groups)} with committed offsets?", yes=yes)

    async def work() -> None:
        async with address.open() as log:
            for group in groups:
                await log.groups.delete(group)

    run_until_signal(work())
    output.result({"deleted": list(groups)}, [f"deleted {group}" for group in groups])
