"""A controller's answers: the records to commit, or the refusal."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.replication.metadata_records import NO_ID as NO_ID
from headwater.core_log.replication.metadata_records import MetadataRecord

DEFAULT = -1

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """The reason why a request, or a part of it, changes nothing."""

    code: ErrorCode
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Decision(Generic[Answer]):
    """A decision. The answer is valid once the records are committed; without records at once."""

    answer: Answer
    records: list[MetadataRecord] = field(default_factory=list)


Permit = Callable[[int], bool]
"""Whether a client may create or delete so many partitions now, by its quota."""


def permit_all(_: int) -> bool:
    return True


OVER_QUOTA = RequestRefusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic; assignments (partition to replicas) exclude both numbers."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    config: Mapping[str, str | None] = field(default_factory=dict)


class TopicReference(NamedTuple):
    """A topic by name or by id, never both."""

    name: str | None
    topic_id: UUID = NO_ID


@dataclass(frozen=True, slots=True)
class Deletion:
    """The result for one reference in a request to delete topics."""

    name: str | None
    topic_id: UUID
    refused: RequestRefusal | None = None


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic and its wanted number of partitions; replicas of the new ones, or None."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] | None = None


class ConfigOperation(IntEnum):
    """Operations on one configuration key, with IncrementalAlterConfigs' numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    operation: ConfigOperation
    value: str | None


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    """Producer ids that one broker may hand out."""

    first: int
    count: int
