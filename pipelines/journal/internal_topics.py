"""The topics that Headwater keeps for itself in the log, and which of their partitions is whose."""

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.records.murmur2 import partition_of

POSITIONS = "__headwater_positions"
COMMITS = "__headwater_commits"
SCHEMAS = "__headwater_schemas"
CONTROL = "__headwater_control"
AUDIT = "__headwater_audit"
MEMBERS = "__headwater_members"
"""Only there once several runs may share a log."""

INTERNAL = frozenset({POSITIONS, COMMITS, SCHEMAS, CONTROL, AUDIT, MEMBERS})

PARTITIONS = 16
SEGMENT_BYTES = 4 << 20
"""Small, since whoever starts reads them whole and only closed segments are compacted."""


def internal_topics(*, history_ms: int) -> list[TopicSettings]:
    """`history_ms`: how long commit boundaries are remembered."""
    compacted = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    aging = {"cleanup.policy": "delete", "retention.ms": str(history_ms)}
    return [
        TopicSettings(name=POSITIONS, partitions=PARTITIONS, config=compacted),
        TopicSettings(name=SCHEMAS, partitions=PARTITIONS, config=compacted),
        TopicSettings(name=CONTROL, partitions=PARTITIONS, config=compacted),
        TopicSettings(
            name=COMMITS,
            partitions=PARTITIONS,
            config=aging | {"segment.bytes": str(SEGMENT_BYTES)},
        ),
    ]


def home_of(topic: str, owner: str) -> TopicPartition:
    """Everything of one pipeline, or of one topic's schemas, is in one partition, in order."""
    return TopicPartition(topic, partition_of(owner.encode(), PARTITIONS))
