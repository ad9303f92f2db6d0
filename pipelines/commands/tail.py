"""`headwater tail`: prints the records of a topic from an offset on, as they come."""

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from headwater.core_log.foundation.clock import unix_ms
from headwater.core_log.foundation.errors import ConfigError, LogRejected
from headwater.core_log.model.log import first_generation, generation_name, generation_number
from headwater.pipelines.terminal.control_writer import find_table, split_target
from headwater.pipelines.terminal.log_address import LogAddress, log_options
from headwater.pipelines.terminal.output import Output, envelope, shared_options
from headwater.pipelines.terminal.signals import run_until_signal
from headwater.pipelines.terminal.starting_points import LATEST, no_partition, resolve

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog
    from headwater.core_log.model.log import Fetched, TopicPartition
    from headwater.pipelines.journal.generations import Generations
    from headwater.pipelines.terminal.record_lines import EventLines

FETCH_WAIT_MS = 500
QUIET_FETCHES = 8
"""After the first empty fetch, and after this many more, a table's newest topic is looked up."""


@click.command()
@click.argument("target", metavar="TOPIC|PIPELINE/TABLE")
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    default=LATEST,
    show_default=True,
    help="earliest, latest, an offset (42), offsets per partition (0:42,1:7), a time "
    "(2026-01-31T12:00, UTC unless it says otherwise) or how long ago (10m).",
)
@click.option("--partition", type=click.IntRange(0), help="Only this partition.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option(
    "--follow/--no-follow",
    default=True,
    show_default=True,
    help="Wait for new records, or stop at the present end.",
)
@click.option(
    "--generation",
    type=click.IntRange(1),
    metavar="N",
    help="This generation of a table's topic instead of the newest.",
)
@click.option("--uncommitted", is_flag=True, help="Also show undecided and aborted records.")
@click.option("--raw", is_flag=True, help="Show keys and values as stored in the log.")
@log_options
@shared_options
@click.pass_obj
def tail(
    output: Output,
    target: str,
    start: str,
    partition: int | None,
    count: int | None,
    follow: bool,
    generation: int | None,
    uncommitted: bool,
    raw: bool,
    address: LogAddress,
) -> None:
    """Print the records of TOPIC, or of the topic of a table.

    If a topic was replaced (`run --migrate`), the newest one is read, with a note; a waiting reader
    continues there, behind the records that were filled in.

    A line is PARTITION:OFFSET, append time, key and value, separated by tabs. For a table's event
    the key and the row are decoded from any value format; --raw shows them as stored. With --json
    each line is a JSON envelope with keys and values as stored. Times are those of the records; a
    time as start means the first record of that time or later.
    """
    printer = TailPrinter(output, count)
    wanted = TailOptions(
        target, generation, start, partition, follow=follow, uncommitted=uncommitted, raw=raw
    )
    run_until_signal(read(address, wanted, printer, output))


@dataclass(frozen=True, slots=True)
class TailOptions:
    target: str
    generation: int | None
    start: str
    partition: int | None
    follow: bool
    uncommitted: bool
    raw: bool


class TailPrinter:
    """Writes records to stdout, a fetch at a time, up to the limit."""

    def __init__(self, output: Output, count_max: int | None) -> None:
        self._output, self._left = output, count_max

    @property
    def is_done(self) -> bool:
        return self._left == 0

    async def show(self, fetched: "Fetched", offset: int, events: "EventLines | None") -> None:
        """Prints the records at or above `offset`; the first batch may begin before."""
        from headwater.core_log.records.record_codec import (
            UNREADABLE,
            decode_batch,
            iterate_batches,
            unreadable,
        )
        from headwater.pipelines.terminal.record_lines import record_data, record_line

        number = fetched.partition.partition
        for batch in iterate_batches(fetched.data):
            lines: list[str] = []
            try:
                header, records = decode_batch(batch)
            except UNREADABLE as error:
                raise unreadable(error, batch, fetched.partition) from error
            wanted = [] if header.is_control else [r for r in records if r.offset >= offset]
            wanted = wanted[: self._left]
            if self._output.as_json:
                facts = ({"partition": number} | record_data(record) for record in wanted)
                lines += map(envelope, facts)
            elif events is None:
                lines += [record_line(number, record) for record in wanted]
            else:
                lines += await events.of(fetched.partition, wanted)
            if self._left is not None:
                self._left -= len(wanted)
            if lines:
                sys.stdout.write("\n".join(lines) + "\n")
                sys.stdout.flush()


async def read(
    address: LogAddress, wanted: TailOptions, printer: TailPrinter, output: Output
) -> None:
    from headwater.core_log.model.log import FetchLimit, Isolation
    from headwater.pipelines.terminal.record_lines import EventLines

    isolation = Isolation.UNCOMMITTED if wanted.uncommitted else Isolation.COMMITTED
    async with address.open(retry_for_ms=60_000) as log:
        chosen = await chosen_topic(log, wanted.target, generation=wanted.generation)
        if chosen.remark:
            output.note(chosen.remark)
        events = None if wanted.raw else EventLines(log)
        partitions = await partitions_of(log, chosen.topic, wanted.partition)
        now_ms = unix_ms()
        positions = dict(await resolve(log, partitions, wanted.start, now_ms=now_ms))
        bounds = await log.bounds(positions)
        ends = {each: b.end if wanted.uncommitted else b.stable for each, b in bounds.items()}
        limit = FetchLimit(wait_ms_max=FETCH_WAIT_MS)
        quiet = 0
        while not printer.is_done:
            places = {p: at for p, at in positions.items() if wanted.follow or at < ends[p]}
            if not places:
                return
            found = await log.fetch(places, limit=limit, isolation=isolation)
            for fetched in found:
                await printer.show(fetched, positions[fetched.partition], events)
                positions[fetched.partition] = fetched.next_offset
            quiet = 0 if found else quiet + 1
            if chosen.pipeline and wanted.partition is None and quiet % QUIET_FETCHES == 1:
                following = await next_positions(log, chosen.pipeline, positions)
                if following:
                    positions = dict(following)
                    topic = next(iter(positions)).topic
                    output.note(f"the table continues in another topic: {topic} is read")


async def partitions_of(
    log: "KafkaLog", topic: str, partition: int | None
) -> "list[TopicPartition]":
    from headwater.core_log.model.log import TopicPartition

    count = await log.partition_count(topic)
    if partition is None:
        return [TopicPartition(topic, number) for number in range(count)]
    if partition >= count:
        raise no_partition(topic, partition, count)
    return [TopicPartition(topic, partition)]


@dataclass(frozen=True, slots=True)
class ChosenGeneration:
    """A topic to read, and what there is to say of it."""

    topic: str
    remark: str = ""
    pipeline: str = ""
    """The pipeline that has written it; empty where it is followed nowhere."""


async def chosen_topic(log: "KafkaLog", target: str, *, generation: int | None) -> ChosenGeneration:
    """`target` is PIPELINE/TABLE or a topic; no topic has a slash in its name."""
    existing = {topic.name for topic in await log.topics.all()}
    asked, pipeline = target, ""
    if "/" in target:
        asked, pipeline = await _topic_of_table(log, target)
    siblings = _siblings(asked, existing)
    if generation is not None:
        first = first_generation(asked)
        topic = first if generation == 1 else generation_name(first, generation)
        if topic not in existing:
            raise ConfigError(
                "the topic does not have this generation, or no longer",
                hint=f"known generations: {', '.join(siblings)}"
                if siblings
                else "headwater topics ls",
                topic=topic,
            )
        return ChosenGeneration(topic)
    if not pipeline and len(siblings) < 2:
        return ChosenGeneration(asked, pipeline=await _writer_of(log, asked, existing))
    pipeline = pipeline or await _writer_of(log, asked, existing)
    present = (await _generations(log, pipeline)).former.get(asked, asked)
    return ChosenGeneration(present, _remark(present, asked=asked, siblings=siblings), pipeline)


async def next_positions(
    log: "KafkaLog", pipeline: str, positions: Mapping["TopicPartition", int]
) -> Mapping["TopicPartition", int]:
    """Where a reader who has come to the end of a topic goes on in the next one, behind what was
    filled into that; nothing while there is none."""
    from headwater.core_log.model.log import TopicPartition

    [topic] = {each.topic for each in positions}
    existing = {each.name for each in await log.topics.all()}
    if not any(
        generation_number(each) > generation_number(topic) for each in _siblings(topic, existing)
    ):
        return {}
    for switch in (await _generations(log, pipeline)).switches:
        if switch.former == topic:
            is_read = all(
                positions.get(TopicPartition(topic, number), end) >= end
                for number, end in switch.former_ends.items()
            )
            ends = switch.ends.items() if is_read else ()
            return {TopicPartition(switch.topic, number): end for number, end in ends}
    return {}


def _siblings(topic: str, existing: Collection[str]) -> list[str]:
    line = [each for each in existing if first_generation(each) == first_generation(topic)]
    return sorted(line, key=generation_number)


def _remark(present: str, *, asked: str, siblings: Collection[str]) -> str:
    number = generation_number(present)
    others = [str(generation_number(each)) for each in siblings if each != present]
    if present != asked:
        answer = f"{asked} is a former generation: {present} is read"
    elif number > 1:
        answer = f"{present} is read, generation {number} of its table's topic"
    else:
        return ""
    return f"{answer}; --generation {' or '.join(others)} reads another" if others else answer


async def _topic_of_table(log: "KafkaLog", target: str) -> tuple[str, str]:
    from headwater.pipelines.journal.inventory import schemas_of

    pipeline, given = split_target(target)
    stored = await schemas_of(log, pipeline)
    if not stored:
        raise ConfigError(
            "the log has no rows of a pipeline of this name",
            hint="headwater topics ls shows the pipelines' topics",
            pipeline=pipeline,
        )
    topics = {str(each.schema.table): topic for topic, each in stored.items()}
    return topics[find_table(given, topics, pipeline=pipeline)], pipeline


async def _writer_of(log: "KafkaLog", topic: str, existing: Collection[str]) -> str:
    from headwater.pipelines.journal.internal_topics import SCHEMAS
    from headwater.pipelines.journal.schemas import read_schemas, schemas_home

    if SCHEMAS not in existing or topic.startswith("__"):
        return ""
    found = [each async for each in read_schemas(log, schemas_home(topic)) if each.topic == topic]
    return found[-1].pipeline if found else ""


async def _generations(log: "KafkaLog", pipeline: str) -> "Generations":
    from headwater.pipelines.journal.commits import load_positions
    from headwater.pipelines.journal.generations import NONE, Generations

    if not pipeline:
        return NONE
    try:
        return Generations.of(await load_positions(log, pipeline))
    except LogRejected:
        return NONE
