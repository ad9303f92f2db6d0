"""`headwater topics`: lists, creates, describes, changes and deletes topics."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.errors import ConfigError
from headwater.pipelines.terminal.control_writer import confirm, yes_option
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, format_count, shared_options, table
from headwater.pipelines.terminal.signals import run_until_signal

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.client.topic_admin import TopicDescription
    from headwater.core_log.foundation.settings import TopicSettings
    from headwater.pipelines.journal.audit import ActionOutcome

TOPIC = click.argument("topic")


@click.group()
def topics() -> None:
    """List, create, describe, change and delete topics."""


@topics.command()
@click.option("--internal", is_flag=True, help="Also show internal topics.")
@log_options
@shared_options
@click.pass_obj
def ls(output: Output, internal: bool, address: LogAddress) -> None:
    """List topics with their partitions and how many offsets they span."""
    found = run_until_signal(list_topics(address, internal))
    head = ("TOPIC", "PARTITIONS", "OFFSETS", "INTERNAL")
    output.result(found, table(head, [tuple(row.values()) for row in found]))


async def list_topics(address: LogAddress, with_internal: bool) -> list[dict[str, object]]:
    from headwater.pipelines.watching.topics_view import is_internal, parts_of, span_of

    async with address.open() as log:
        found = [
            topic for topic in await log.topics.all() if with_internal or not is_internal(topic)
        ]
        bounds = await log.bounds([part for topic in found for part in parts_of(topic)])
        return [
            {
                "topic": topic.name,
                "partitions": len(topic.partitions),
                "offsets": sum(span_of(bounds[part]) for part in parts_of(topic)),
                "internal": is_internal(topic),
            }
            for topic in found
        ]


@topics.command()
@TOPIC
@click.option(
    "--partitions",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of partitions; a topic with keys should keep its first number.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1),
    help="Replicas of each partition; by default three, or as many as there are live brokers.",
)
@click.option(
    "--config",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Kafka's topic configuration, such as cleanup.policy=compact; may be repeated.",
)
@log_options
@shared_options
@click.pass_obj
def create(
    output: Output,
    topic: str,
    partitions: int,
    replication_factor: int | None,
    settings: tuple[str, ...],
    address: LogAddress,
) -> None:
    """Create TOPIC; one that exists already is an error."""
    config = parse_settings(settings)

    async def work() -> None:
        wanted = topic_settings(topic, partitions, config, replication_factor or -1)
        async with address.open() as log, record_action(log, "create", topic, config):
            await log.topics.create(wanted)

    run_until_signal(work())
    created = {"topic": topic, "partitions": partitions, "config": config}
    output.result(created, [f"created {topic} with {format_count(partitions, 'partition')}"])


def record_action(
    log: "KafkaLog", action: str, topic: str, options: Mapping[str, str] | None = None
) -> "AbstractAsyncContextManager[ActionOutcome]":
    from headwater.pipelines.journal.audit import audit

    return audit(log, f"topics {action}", topic, options)


def topic_settings(
    topic: str, partitions: int, config: dict[str, str], replication_factor: int = -1
) -> "TopicSettings":
    from pydantic import ValidationError

    from headwater.core_log.foundation.settings import TopicSettings

    try:
        return TopicSettings(
            name=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            config=config,
        )
    except ValidationError:
        raise ConfigError(
            "the name is not valid for a topic",
            topic=topic,
            hint="use letters, digits, dot, underscore and dash, at most 249 of them",
        ) from None


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not name:
            raise ConfigError("the setting is not of the form NAME=VALUE", given=setting)
        parsed[name] = value
    return parsed


@topics.command()
@TOPIC
@log_options
@shared_options
@click.pass_obj
def describe(output: Output, topic: str, address: LogAddress) -> None:
    """Show the partitions of TOPIC, how far they reach, and what was configured for it."""
    from headwater.pipelines.watching.topics_view import is_internal

    found, rows, config = run_until_signal(look_at(address, topic))
    facts = {
        "topic": found.name,
        "id": str(found.topic_id),
        "internal": is_internal(found),
        "config": config,
        "partitions": rows,
    }
    configured = " ".join(f"{name}={value}" for name, value in config.items()) or "all defaults"
    lines = [f"{found.name}  id {found.topic_id}  {configured}"]
    head = [name.replace("_", " ").upper() for name in rows[0]] if rows else []
    output.result(facts, lines + table(head, [tuple(row.values()) for row in rows]))


async def look_at(
    address: LogAddress, topic: str
) -> "tuple[TopicDescription, list[dict[str, object]], dict[str, str | None]]":
    from headwater.pipelines.watching.topics_view import partition_rows, parts_of

    async with address.open() as log:
        found = await log.topics.describe(topic)
        bounds = await log.bounds(parts_of(found))
        config = await log.topics.config(topic)
    changed = {each.name: each.value for each in config if not each.is_default}
    return found, partition_rows(found, bounds), changed


@topics.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@yes_option
@log_options
@shared_options
@click.pass_obj
def delete(output: Output, topics: tuple[str, ...], yes: bool, address: LogAddress) -> None:
    """Delete topics and everything in them, for good."""
    confirm(f"delete {', '.join(topics)} with all records?", yes=yes)

    async def work() -> None:
        async with address.open() as log:
            for topic in topics:
                await log.topics.describe(topic)  # all or none, if a name is wrong
            for topic in topics:
                async with record_action(log, "delete", topic):
                    await log.topics.delete(topic)

    run_until_signal(work())
    output.result({"deleted": list(topics)}, [f"deleted {topic}" for topic in topics])


@topics.command()
@TOPIC
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--unset", metavar="NAME", multiple=True, help="Back to the default; repeatable.")
@click.option("--all", "show_all", is_flag=True, help="Show defaults, too.")
@log_options
@shared_options
@click.pass_obj
def config(
    output: Output,
    topic: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    show_all: bool,
    address: LogAddress,
) -> None:
    """Show the configuration of TOPIC, or change it: headwater topics config t retention.ms=1000"""
    changes = parse_settings(settings)
    found = run_until_signal(change(address, topic, changes, unset))
    rows = [row for row in found if show_all or not row["default"]]
    lines = [f"{row['name']}={row['value']}" for row in rows]
    output.result(rows, lines)
    if not rows:
        output.note("everything is at its default; --all shows them")


async def change(
    address: LogAddress, topic: str, set_to: dict[str, str], unset: Sequence[str]
) -> list[dict[str, object]]:
    async with address.open() as log:
        if set_to or unset:
            changes = {**set_to, **dict.fromkeys(unset, "default")}
            async with record_action(log, "config", topic, changes):
                await log.topics.alter(topic, set_to=set_to, unset=unset)
        return await configuration(log, topic)


async def configuration(log: "KafkaLog", topic: str) -> list[dict[str, object]]:
    return [
        {"name": each.name, "value": each.value, "default": each.is_default}
        for each in await log.topics.config(topic)
    ]
