"""From where to read: earliest, latest, an offset, offsets per partition, or a moment."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.foundation.errors import ConfigError, OffsetOutOfRange
from headwater.core_log.model.log import Bounds, Offsets, TopicPartition
from headwater.pipelines.terminal.quantities import PER_PARTITION, parse_count, parse_time

if TYPE_CHECKING:
    from headwater.core_log.client import KafkaLog

EARLIEST, LATEST = "earliest", "latest"
HINT = (
    "write earliest, latest, an offset such as 42, offsets per partition such as 0:42,1:7, "
    "a time such as 2026-01-31T12:00, or how long ago, such as 10m"
)


async def resolve(
    log: "KafkaLog", partitions: Sequence[TopicPartition], text: str, *, now_ms: int
) -> Offsets:
    """The offset that `text` means in each partition; only those named where it names some."""
    bounds = await log.bounds(partitions)
    if text == EARLIEST:
        return {partition: bounds[partition].start for partition in partitions}
    if text == LATEST:
        return {partition: bounds[partition].stable for partition in partitions}
    if (offset := parse_count(text)) is not None:
        return _check({_the_one(partitions): offset}, bounds)
    if PER_PARTITION.fullmatch(text):
        return _check(_name(partitions, text), bounds)
    timestamp_ms = parse_time(text, now_ms)
    if timestamp_ms is None:
        raise ConfigError("the text is not a place in a log", given=text, hint=HINT)
    return await log.offsets_at(partitions, timestamp_ms=timestamp_ms)


def _the_one(partitions: Sequence[TopicPartition]) -> TopicPartition:
    if len(partitions) > 1:
        raise ConfigError(
            "an offset belongs to one partition, and the topic has several",
            topic=partitions[0].topic,
            partitions=len(partitions),
            hint="add --partition N, or write offsets as 0:42,1:7",
        )
    return partitions[0]


def _name(partitions: Sequence[TopicPartition], text: str) -> dict[TopicPartition, int]:
    by_number = {partition.partition: partition for partition in partitions}
    offsets: dict[TopicPartition, int] = {}
    for pair in text.split(","):
        number, offset = map(int, pair.split(":"))
        if number not in by_number:
            raise no_partition(partitions[0].topic, number, len(partitions))
        offsets[by_number[number]] = int(offset)
    return offsets


def no_partition(topic: str, number: int, count: int) -> ConfigError:
    return ConfigError(
        "the topic does not have this partition", topic=topic, partition=number, has=count
    )


def _check(
    offsets: dict[TopicPartition, int], bounds: Mapping[TopicPartition, Bounds]
) -> dict[TopicPartition, int]:
    for partition, offset in offsets.items():
        bound = bounds[partition]
        if not bound.start <= offset <= bound.end:
            raise OffsetOutOfRange(
                "the log does not have this offset",
                topic=partition.topic,
                partition=partition.partition,
                offset=offset,
                start=bound.start,
                end=bound.end,
                hint="use --from earliest, or an offset from start to end",
            )
    return offsets
