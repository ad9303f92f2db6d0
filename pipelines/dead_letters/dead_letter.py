"""Records that can never be applied: kept in `<pipeline>.dlq`, byte for byte, with the reason."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import orjson
import pyarrow as pa

from headwater.core_log.foundation.errors import DecodeError, RecordsRejected, TransformRejected
from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.changes import Reject
from headwater.core_log.model.log import Log, TopicPartition
from headwater.core_log.records import arrow_codec
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.records.compression import Compression
from headwater.core_log.records.record_codec import Header
from headwater.core_log.records.record_headers import encode_headers, header_lists
from headwater.core_log.records.record_views import RecordColumns
from headwater.core_log.rows.codec import AT_HEADER
from headwater.pipelines.journal.internal_topics import read_decided

ERRORS = "__connect.errors."
"""Prefix of Kafka Connect's headers, by which its tools know where a dead letter comes from."""
KEY_HEADER = "headwater.key"
"""The record's own key; the dead letter's key is its place, so that a retry overwrites it."""
TABLE_HEADER = "headwater.table"
TOPIC_ID_HEADER = "headwater.topic.id"
PIECE_BYTES_MAX = 8 << 20
"""A piece of a source that is longer is cut: it is kept to be looked at, not to be applied."""
RECORD_BYTES_MAX = 32 << 20


class FailureStage(Enum):
    """Where a record failed, in Kafka Connect's words."""

    SOURCE = "TASK_POLL"
    DECODING = "VALUE_CONVERTER"
    TRANSFORM = "TRANSFORMATION"
    SINK = "TASK_PUT"

    @staticmethod
    def of(error: RecordsRejected) -> "FailureStage":
        if isinstance(error, TransformRejected):
            return FailureStage.TRANSFORM
        return (
            FailureStage.DECODING if isinstance(error.__cause__, DecodeError) else FailureStage.SINK
        )


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record as it stands in its topic, or a piece of a source that never became one: that has
    no topic, and is known by where it stood at its source."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    """The record's own."""
    stage: FailureStage
    error: str
    """The problem, without any value of the record."""
    at: str
    """The record's `headwater.at`: where its change stands at the source."""
    table: str = ""
    """By its name at the source; empty where only the topic is known."""
    task: str = ""
    """Which sink, or `source`."""
    kind: str = "RecordsRejected"
    """The class of the error."""
    topic_id: str = ""
    """Which topic of that name; empty in dead letters of older versions."""

    @property
    def is_record(self) -> bool:
        return self.offset >= 0

    @property
    def place(self) -> bytes:
        """The dead letter's own key."""
        if self.is_record:
            return orjson.dumps(
                {"topic": self.topic, "partition": self.partition, "offset": self.offset}
            )
        return orjson.dumps({"table": self.table, "at": self.at})


def dead_letter_topic(pipeline: str) -> TopicSettings:
    """Dead letters stay until somebody decides about them; then compaction takes them away."""
    return TopicSettings(
        name=f"{pipeline}.dlq",
        config={"cleanup.policy": "compact", "max.message.bytes": str(RECORD_BYTES_MAX)},
    )


def dead_letter_home(pipeline: str) -> TopicPartition:
    return TopicPartition(f"{pipeline}.dlq", 0)


def encode(dead_letters: Sequence[DeadLetter], *, pipeline: str, now_ms: int) -> list[Batch]:
    """Batches for the pipeline's dead-letter topic."""
    return arrow_codec.encode(
        pa.array([dead_letter.place for dead_letter in dead_letters], pa.binary()),
        pa.array([dead_letter.value for dead_letter in dead_letters], pa.binary()),
        timestamps_ms=now_ms,
        headers=pa.array(
            [encode_headers(_headers(each, pipeline)) for each in dead_letters], pa.binary()
        ),
        compression=Compression.ZSTD,
    )


def encode_rejects(
    pipeline: str, rejects: Iterable[Reject], *, now_ms: int
) -> Iterator[tuple[TopicPartition, Batch]]:
    """The same for pieces of a source that are no rows."""
    dead_letters = [
        DeadLetter(
            topic="",
            partition=-1,
            offset=-1,
            key=None,
            value=reject.content[:PIECE_BYTES_MAX],
            headers=((AT_HEADER, reject.at.encode()),),
            stage=FailureStage.SOURCE,
            error=reject.problem,
            at=reject.at,
            table=str(reject.table),
            task="source",
            kind="Reject",
        )
        for reject in rejects
    ]
    for batch in encode(dead_letters, pipeline=pipeline, now_ms=now_ms):
        yield dead_letter_home(pipeline), batch


async def append_dead_letters(
    log: Log, pipeline: str, dead_letters: Sequence[DeadLetter], *, now_ms: int
) -> None:
    """On disk when this returns. A dead letter that is appended twice counts once."""
    for batch in encode(dead_letters, pipeline=pipeline, now_ms=now_ms):
        await log.append(dead_letter_home(pipeline), batch)


def encode_removals(dead_letters: Sequence[DeadLetter], *, now_ms: int) -> list[Batch]:
    """Tombstones: these dead letters have been decided about."""
    return arrow_codec.encode(
        pa.array([dead_letter.place for dead_letter in dead_letters], pa.binary()),
        pa.array([None] * len(dead_letters), pa.binary()),
        timestamps_ms=now_ms,
    )


def _headers(dead_letter: DeadLetter, pipeline: str) -> list[Header]:
    content = {
        "topic": dead_letter.topic,
        "partition": str(dead_letter.partition),
        "offset": str(dead_letter.offset),
        "connector.name": pipeline,
        "task.id": dead_letter.task,
        "stage": dead_letter.stage.value,
        "class.name": dead_letter.task,
        "exception.class.name": dead_letter.kind,
        "exception.message": dead_letter.error,
        # A trace of ours would show values; the first line of one is what tools look for.
        "exception.stacktrace": f"{dead_letter.kind}: {dead_letter.error}",
    }
    errors = [(ERRORS + name, text.encode()) for name, text in content.items()]
    ours = [
        (KEY_HEADER, dead_letter.key),
        (TABLE_HEADER, dead_letter.table.encode()),
        (TOPIC_ID_HEADER, dead_letter.topic_id.encode()),
    ]
    return [*dead_letter.headers, *errors, *ours]


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    dead_letter: DeadLetter
    number: int
    """Its offset in the dead-letter topic: by that people call it."""
    since_ms: int


async def read_dead_letters(log: Log, pipeline: str) -> list[StoredDeadLetter]:
    """Those that nobody has decided about yet, oldest first; of a record that failed again the
    newest."""
    home = dead_letter_home(pipeline)
    found: dict[bytes, StoredDeadLetter] = {}
    async for columns in read_decided(log, home):
        for place, stored in _decode(columns):
            found.pop(place, None)
            if stored is not None:
                found[place] = stored
    return list(found.values())


def _decode(columns: RecordColumns) -> Iterator[tuple[bytes, StoredDeadLetter | None]]:
    for offset, time_ms, place, value, headers in zip(
        columns.offsets.tolist(),
        columns.timestamps_ms.tolist(),
        columns.keys.to_pylist(),
        columns.values.to_pylist(),
        header_lists(columns.headers).to_pylist(),
        strict=True,
    ):
        if value is None and not headers:
            yield place, None
        else:
            pairs = [(each["key"].decode(), each["value"]) for each in headers]
            yield place, StoredDeadLetter(_dead_letter(value, pairs), offset, time_ms)


def _dead_letter(value: bytes | None, headers: Sequence[Header]) -> DeadLetter:
    content = {name: (value or b"").decode() for name, value in headers if _is_ours(name)}
    own = tuple(header for header in headers if not _is_ours(header[0]))
    by_name = dict(headers)
    return DeadLetter(
        topic=content[ERRORS + "topic"],
        partition=int(content[ERRORS + "partition"]),
        offset=int(content[ERRORS + "offset"]),
        key=by_name.get(KEY_HEADER),
        value=value,
        headers=own,
        stage=FailureStage(content[ERRORS + "stage"]),
        error=content[ERRORS + "exception.message"],
        at=(by_name.get(AT_HEADER) or b"").decode(),
        table=content[TABLE_HEADER],
        task=content[ERRORS + "task.id"],
        kind=content[ERRORS + "exception.class.name"],
        topic_id=content.get(TOPIC_ID_HEADER, ""),
    )


def _is_ours(name: str) -> bool:
    return name.startswith(ERRORS) or name in (KEY_HEADER, TABLE_HEADER, TOPIC_ID_HEADER)
