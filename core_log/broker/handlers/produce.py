"""Produce (key 0), versions 3 to 13: appends one record batch per partition.

Versions 0 to 2 are advertised, because librdkafka derives its compression from them, and refused.
Every batch is checked by its header: sizes, counts, sequence, checksum, the first bytes of
compressed records. In a compacted topic each record is checked, too: complete, at its offset, and
with a key. For a topic whose compression.type is not "producer" batches are compressed again; for
this, and for long batches of compacted topics, the request waits while others are served.
Deliberately not done: checks of records of other topics, conversion between formats, leader hints
(version 10).
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from headwater.core_log.broker.administration import code_of
from headwater.core_log.broker.authorization import denial, topic_denial
from headwater.core_log.broker.batch_validation import (
    ZSTD,
    InternalTopic,
    MissingKeys,
    UnsupportedCompression,
    append_batch,
    check_header,
    check_outline,
    is_small,
    open_in_thread,
    read_header,
)
from headwater.core_log.broker.connection import Reply
from headwater.core_log.broker.dispatch import RequestContext, handles_raw
from headwater.core_log.broker.quotas import RequestUse
from headwater.core_log.broker.transaction_verification import Verdicts, Verification
from headwater.core_log.foundation.errors import BatchRejected, HeadwaterError, LogRejected
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.produce import ProduceRequest
from headwater.core_log.protocol.produce_frames import (
    PartAnswer,
    ProduceFrame,
    ProducePart,
    read_produce,
    write_produce_answer,
)
from headwater.core_log.records.batch_header import HEADER_BYTES, BatchHeader
from headwater.core_log.security.acls import AclOperation, ResourceType
from headwater.core_log.storage.log_config import LogConfig

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker
    from headwater.core_log.broker.partition import Partition

ZSTD_FROM = 7
NO_VERDICTS: Verdicts = {}
SMALL_BYTES = 64 << 10
"""A larger batch is synced together with the rest of its transaction."""

Answer = bytes | Reply | None


@handles_raw(ProduceRequest, advertised_from=0)
def handle_produce(
    broker: "Broker",
    frame: memoryview,
    position: int,
    correlation_id: int,
    context: RequestContext,
) -> Answer | Awaitable[Answer]:
    request = read_produce(frame, position, context.api_version)
    production = ProduceAttempt(broker, request, correlation_id, context.api_version, context.use)
    if broker.authorizer is not None:
        production.authorize(context)
    if indices := production.large_to_open():
        production.keep_records()
        return production.append_opened(indices)
    return production.append_verified()


class ProduceAttempt:
    """One Produce request: it is appended at once, and answered according to its acks."""

    def __init__(
        self,
        broker: "Broker",
        request: ProduceFrame,
        correlation_id: int,
        version: int,
        use: RequestUse | None = None,
    ) -> None:
        self.broker, self.request, self.use = broker, request, use
        self.correlation_id, self.version = correlation_id, version
        self.answers: list[PartAnswer] = []
        self.reply: Reply | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.awaits_followers = False
        self.waiting_count = 0
        self.wait_ms = 0
        """How long the client must wait for its quotas."""
        self.denied: Sequence[ErrorCode] = ()
        """For each part the error of who may not write there; empty if nobody is asked."""
        self.opened: dict[int, LogConfig | HeadwaterError] = {}
        """By index: the configuration for which a large batch was checked, or the error."""

    def authorize(self, context: RequestContext) -> None:
        """Refuses the parts that the client may not write; their records are not looked at."""
        name, parts = self.request.transactional_id, self.request.parts
        kind = ResourceType.TRANSACTIONAL_ID
        if any(map(is_transactional, parts)) and (
            name is None or denial(self.broker, context, AclOperation.WRITE, kind, name)
        ):
            self.denied = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(parts)
        else:
            topics = {part.topic for part in parts}
            codes = {
                topic: topic_denial(self.broker, context, AclOperation.WRITE, topic)
                for topic in topics
            }
            self.denied = [codes[part.topic] for part in parts]
        if any(self.denied):
            kept = [
                part._replace(records=None) if code else part
                for part, code in zip(parts, self.denied, strict=True)
            ]
            self.request = self.request._replace(parts=kept)

    def large_to_open(self) -> list[int]:
        """Returns the indices of batches whose check takes longer."""
        return [
            index
            for index, part in enumerate(self.request.parts)
            if part.records is not None
            and len(part.records) >= HEADER_BYTES
            and (partition := self.broker.find_led(part.topic, part.partition)) is not None
            and partition.log.config.opens_batches
            and not is_small(part.records)
        ]

    def keep_records(self) -> None:
        """Copies the records: the frame's buffer is reused while the request waits."""
        kept = [
            part._replace(records=part.records and memoryview(bytearray(part.records)))
            for part in self.request.parts
        ]
        self.request = self.request._replace(parts=kept)

    async def append_opened(self, indices: Sequence[int]) -> Answer:
        async with self.broker.opening:  # one at a time, because each may need much memory
            for index in indices:
                try:
                    await self._open(index)
                except HeadwaterError as error:
                    self.opened[index] = error
        answer = self.append_verified()
        return await answer if isinstance(answer, Awaitable) else answer

    async def _open(self, index: int) -> None:
        part = self.request.parts[index]
        partition = self.broker.find_led(part.topic, part.partition)
        if partition is None:
            return
        config = partition.log.config
        header = read_header(part.records)
        assert part.records is not None, "a header was read from them"
        self._check(header, partition.topic)
        check_header(config, header, self.broker.clock.now_ms())
        check_outline(header, part.records)
        records = await open_in_thread(config, header, part.records, self.broker.scratch)
        parts = list(self.request.parts)
        parts[index] = part._replace(records=records)
        self.request = self.request._replace(parts=parts)
        self.opened[index] = config

    def append_verified(self) -> Answer | Awaitable[Answer]:
        """Asks the coordinator first for a batch that would start its producer's transaction
        there."""
        if (asked := self._verification()) is None:
            return self.append()
        verdicts = asked.at_once()
        if verdicts is not None:
            return self.append(verdicts)
        self.keep_records()
        return self._append_answered(asked)

    async def _append_answered(self, asked: Verification) -> Answer:
        verdicts = {**await asked.answer()}
        for index, part in enumerate(self.request.parts):
            if index not in asked.opening and self._opening(part) is not None:
                verdicts[index] = ErrorCode.NOT_ENOUGH_REPLICAS  # not verified: it was open before
        return self.append(verdicts)

    def append(self, verdicts: Verdicts = NO_VERDICTS) -> Answer:
        """Appends every partition's batch."""
        request, acks = self.request, self.request.acks
        if acks not in (-1, 0, 1):
            return self._answer_all(ErrorCode.INVALID_REQUIRED_ACKS)
        waits: list[tuple[Partition, int, int]] = []
        now_ms = self.broker.clock.now_ms()
        for index, part in enumerate(request.parts):
            code = verdicts.get(index, ErrorCode.NONE)
            if self.denied and self.denied[index]:
                code = self.denied[index]
            self.answers.append(self._append_part(part, code, now_ms, waits))
        if request.transactional_id is not None and self._is_small:
            # the transaction's end, which waits for the disk, will come soon
            self.broker.committer.hurry()
        if acks == 0:
            self._end_unanswered()
            return None
        if not waits:
            return self._finish()
        self._count(is_answered=True)
        self.reply, self.waiting_count = Reply(), len(waits)
        if self.awaits_followers:
            wait_s = max(request.timeout_ms, 0) / 1000
            self.timer = asyncio.get_running_loop().call_later(wait_s, self._give_up, waits)
        for partition, end_offset, index in waits:
            partition.when_committed(end_offset, CommittedPart(self, index))
        return self.reply

    def _end_unanswered(self) -> None:
        if any(answer.error_code for answer in self.answers):
            raise LogRejected("a batch sent without wanting an answer was refused")
        self._count(is_answered=False)

    def _count(self, *, is_answered: bool) -> None:
        """Counts the request, once, as soon as it is appended: what the client has sent ahead waits
        as well."""
        if self.use is not None:
            self.wait_ms = self.use.on_produced(is_answered=is_answered)
            self.use = None

    def _append_part(
        self,
        part: ProducePart,
        refused: ErrorCode,
        now_ms: int,
        waits: "list[tuple[Partition, int, int]]",
    ) -> PartAnswer:
        if refused:
            return PartAnswer(refused)
        partition = self.broker.find_led(part.topic, part.partition)
        if partition is None:
            code = self.broker.why_not_led(part.topic, part.partition)
            return PartAnswer(code, message=self.broker.why_unserved(part.topic, part.partition))
        opened_for = self.opened.get(len(self.answers))
        try:
            if isinstance(opened_for, HeadwaterError):
                raise opened_for
            header = read_header(part.records)
            assert part.records is not None, "a header was read from them"
            self._check(header, partition.topic)
            waits_for_disk = self.request.acks == -1 and not (
                header.is_transactional and self.broker.has_short_cuts
            )
            leader = partition.leader
            if self.request.acks == -1 and leader is not None and not leader.has_enough_in_sync:
                return PartAnswer(ErrorCode.NOT_ENOUGH_REPLICAS)
            done = append_batch(
                partition,
                part.records,
                header,
                now_ms=now_ms,
                is_urgent=waits_for_disk,
                opened_for=opened_for,
            )
        except MissingKeys as error:
            name = f"{partition.topic}-{partition.index}"
            why = f"Compacted topic cannot accept message without key in topic partition {name}"
            errors = [(index, why) for index in error.indices]
            return PartAnswer(code_of(error), message=error.problem, record_errors=errors)
        except HeadwaterError as error:
            return PartAnswer(code_of(error), message=error.problem)
        if waits_for_disk and done.end_offset > partition.high_watermark:
            self.awaits_followers = self.awaits_followers or partition.is_replicated
            waits.append((partition, done.end_offset, len(self.answers)))
        return PartAnswer(0, done.base_offset, done.append_time_ms, partition.log.start_offset)

    def _check(self, header: BatchHeader, topic: str) -> None:
        """Checks the rules between a batch and its request."""
        if header.compression == ZSTD and self.version < ZSTD_FROM:
            raise UnsupportedCompression("zstd needs Produce version 7 or newer")
        if header.is_transactional and self.request.transactional_id is None:
            raise BatchRejected("a transactional batch needs its request's transactional id")
        if self.broker.is_internal(topic):
            raise InternalTopic("internal topics are written by the broker only")

    @property
    def _is_small(self) -> bool:
        return sum(len(part.records or b"") for part in self.request.parts) < SMALL_BYTES

    def _answer_all(self, code: ErrorCode) -> Answer:
        self.answers = [PartAnswer(code) for _ in self.request.parts]
        return self._finish()

    def _finish(self) -> bytes:
        self._count(is_answered=True)
        return write_produce_answer(
            self.request.parts, self.answers, self.correlation_id, self.version, self.wait_ms
        )

    def on_committed(self, index: int, code: ErrorCode) -> None:
        """Called when the records are committed, or with the reason why that is not known."""
        if code is not ErrorCode.NONE:
            self.answers[index] = PartAnswer(code)
        self.waiting_count -= 1
        if self.waiting_count == 0:
            assert self.reply is not None, "only a waiting request has a reply to fulfil"
            if self.timer is not None:
                self.timer.cancel()
            if self.reply.chunks is None:
                self.reply.fulfil((self._finish(),))

    def _give_up(self, waits: "list[tuple[Partition, int, int]]") -> None:
        """Answers that the replicas have not followed in time; the records may yet be committed."""
        assert self.reply is not None, "only a waiting request can be late"
        for partition, end_offset, index in waits:
            if partition.high_watermark < end_offset and not self.answers[index].error_code:
                self.answers[index] = PartAnswer(ErrorCode.REQUEST_TIMED_OUT)
        self.reply.fulfil((self._finish(),))

    def _verification(self) -> Verification | None:
        """Returns the verification; None unless some batch would start its producer's transaction
        in its partition."""
        broker, name = self.broker, self.request.transactional_id
        if name is None:
            return None
        opening = {
            index: (TopicPartition(broker.topic_name(part.topic), part.partition), header)
            for index, part in enumerate(self.request.parts)
            if (header := self._opening(part)) is not None
        }
        return Verification(broker, name, opening, self.version) if opening else None

    def _opening(self, part: ProducePart) -> BatchHeader | None:
        partition = self.broker.find_led(part.topic, part.partition)
        if partition is None or part.records is None or len(part.records) < HEADER_BYTES:
            return None
        header = BatchHeader.read(part.records)
        is_open = partition.log.producers.has_open_transaction
        if not header.is_transactional or is_open(header.producer_id, header.producer_epoch):
            return None
        return header


def is_transactional(part: ProducePart) -> bool:
    if part.records is None or len(part.records) < HEADER_BYTES:
        return False
    return BatchHeader.read(part.records).is_transactional


class CommittedPart:
    """Called when one partition's batch is committed; it is cheaper than a closure per batch."""

    __slots__ = ("_index", "_production")

    def __init__(self, production: ProduceAttempt, index: int) -> None:
        self._production, self._index = production, index

    def __call__(self, code: ErrorCode) -> None:
        self._production.on_committed(self._index, code)
