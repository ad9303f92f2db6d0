"""Failures of requests: which codes of a broker are retried, how long, and what they end in."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from random import Random
from typing import TypeVar

from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.disk_space import HINT, has_no_room
from headwater.core_log.foundation.errors import (
    BatchRejected,
    BatchTooLarge,
    CorruptBatch,
    DiskFull,
    Fenced,
    HeadwaterError,
    InvalidTransactionState,
    LogRejected,
    LogUnavailable,
    OutOfOrderSequence,
    PositionLost,
)
from headwater.core_log.links.connection import CLOSED, RetriableFailure
from headwater.core_log.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

T = TypeVar("T")
E = ErrorCode

DISK_S = 3.0
"""Time for which refused writes may be a short disk problem that is not reported."""

LOGGED_AFTER_S = 2.0
"""Time for which a whole cluster may be unreachable before it is logged; the retries go on for
longer."""


class NoBroker(RetriableFailure):
    """No address of the cluster answers."""

    def __init__(self, *, tried: str, is_first: bool) -> None:
        super().__init__("the cluster does not answer", tried=tried)
        self.is_first = is_first
        """Whether no broker has ever answered: then the address may be wrong as well."""


class UnknownTopic(RetriableFailure):
    """The cluster does not know the topic (yet)."""


class DiskRejectsWrites(RetriableFailure):
    """The disk of the log accepts no writes at the moment; waiting callers should learn it soon."""


OF_THEIR_OWN = (NoBroker, UnknownTopic, DiskRejectsWrites)
"""Failures that name their own cause."""


UNKNOWN_TOPIC = frozenset({E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID})

STALE_LEADER = UNKNOWN_TOPIC | {
    E.NOT_LEADER_OR_FOLLOWER,
    E.LEADER_NOT_AVAILABLE,
    E.FENCED_LEADER_EPOCH,
    E.UNKNOWN_LEADER_EPOCH,
    E.KAFKA_STORAGE_ERROR,
    E.REPLICA_NOT_AVAILABLE,
    E.INCONSISTENT_TOPIC_ID,
}
"""After these codes the topic's leaders are requested again."""

STALE_COORDINATOR = frozenset({E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE})
"""After these codes the coordinator is looked up again."""

_KINDS: Mapping[ErrorCode, tuple[type[HeadwaterError], str, str]] = {
    E.PRODUCER_FENCED: (Fenced, "a newer writer of this name has taken over", ""),
    E.INVALID_PRODUCER_EPOCH: (Fenced, "a newer writer of this name has taken over", ""),
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        OutOfOrderSequence,
        "the log misses batches that this writer sent earlier",
        "open a new writer and read its position again",
    ),
    E.UNKNOWN_PRODUCER_ID: (
        OutOfOrderSequence,
        "the log no longer knows this writer",
        "open a new writer and read its position again",
    ),
    E.INVALID_PRODUCER_ID_MAPPING: (
        LogUnavailable,
        "the log has forgotten this writer's name",
        "open the writer anew; transactional.id.expiration.ms says how long names are kept",
    ),
    E.TRANSACTION_ABORTABLE: (LogUnavailable, "the transaction must be aborted and repeated", ""),
    E.INVALID_TXN_STATE: (InvalidTransactionState, "the transaction is not open here", ""),
    E.MESSAGE_TOO_LARGE: (
        BatchTooLarge,
        "batch is larger than the topic takes",
        "raise max.message.bytes of the topic, or write smaller batches",
    ),
    E.RECORD_LIST_TOO_LARGE: (
        BatchTooLarge,
        "batch is larger than a segment of the topic",
        "raise segment.bytes of the topic, or write smaller batches",
    ),
    E.CORRUPT_MESSAGE: (CorruptBatch, "the log found the batch damaged", ""),
    E.INVALID_RECORD: (BatchRejected, "the topic does not take such records", ""),
    E.INVALID_TIMESTAMP: (BatchRejected, "the topic does not take such timestamps", ""),
    E.UNSUPPORTED_COMPRESSION_TYPE: (BatchRejected, "the log does not know the compression", ""),
    E.OFFSET_OUT_OF_RANGE: (PositionLost, "the log does not have this offset", ""),
}


def check(code: int, *, message: str | None = None, **facts: object) -> None:
    """Returns if the broker reports success; raises its error otherwise."""
    if code != E.NONE:
        raise refusal(code, message=message, **facts)


def refusal(code: int, *, message: str | None = None, **facts: object) -> Exception:
    """Returns TryAgain if a retry can succeed, else the error for the caller."""
    known = ErrorCode(code)
    if known in UNKNOWN_TOPIC:
        return UnknownTopic("topic or partition does not exist", **facts)
    if known == E.KAFKA_STORAGE_ERROR:
        return DiskRejectsWrites(message or known.meaning, **facts)
    if known in _KINDS:
        kind, problem, hint = _KINDS[known]
        return kind(problem, hint=hint, **facts)
    if known.is_retriable or known in STALE_LEADER:
        return RetriableFailure(known.meaning, error=known.name, **facts)
    return LogRejected(message or known.meaning, hint="", **{"error": known.name, **facts})


class RetryLoop:
    """Repeats an attempt with growing delays, until it succeeds or time is up."""

    def __init__(
        self,
        settings: KafkaSettings,
        random: Random,
        *,
        first_logged_after_s: float = LOGGED_AFTER_S,
    ) -> None:
        """`first_logged_after_s`: like `LOGGED_AFTER_S`, for a cluster that has never answered."""
        self._settings, self._random, self._first_logged_after_s = (
            settings,
            random,
            first_logged_after_s,
        )
        self.problem = ""
        """The reason why the cluster cannot be reached; empty if it answers."""
        self._is_logged = False

    async def until_done(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        for_ms: int | None = None,
        find_cause: Callable[[], Awaitable[HeadwaterError | None]] | None = None,
    ) -> T:
        """Raises LogUnavailable with the last reason once `for_ms` (a setting) is over, or what
        `find_cause` finds after a while."""
        settings, loop = self._settings, asyncio.get_running_loop()
        started = loop.time()
        patience_s = (settings.retry_for_ms if for_ms is None else for_ms) / 1000
        delay_s, asked_s = settings.retry_delay_ms / 1000, DISK_S
        while True:
            try:
                done = await attempt()
            except RetriableFailure as again:
                bound_s = min(patience_s, self._longest_s(again))
                if isinstance(again, NoBroker):
                    self._on_away(again, loop.time() - started)
                past_s = loop.time() - started
                if past_s + delay_s > bound_s:
                    raise give_up_error(again, settings) from again
                if past_s > asked_s and find_cause and not isinstance(again, OF_THEIR_OWN):
                    asked_s = past_s + DISK_S
                    cause = None
                    with suppress(TimeoutError):
                        async with asyncio.timeout(bound_s - past_s):
                            cause = await find_cause()
                    if cause is not None:
                        raise cause from again
            else:
                self._on_answered()
                return done
            # Jitter keeps clients that lost the same broker from reconnecting at the same time.
            await asyncio.sleep(delay_s * (0.5 + self._random.random() / 2))
            delay_s = min(delay_s * 2, settings.retry_delay_ms_max / 1000)

    def _longest_s(self, again: RetriableFailure) -> float:
        """Returns how long it is retried at most, for its kind."""
        if isinstance(again, UnknownTopic):
            return self._settings.unknown_topic_for_ms / 1000
        if isinstance(again, DiskRejectsWrites):
            return DISK_S
        if isinstance(again, NoBroker) and again.is_first:
            return self._settings.first_answer_ms_max / 1000
        return inf

    def _on_away(self, why: NoBroker, for_s: float) -> None:
        self.problem = f"{why.reason}: {why.facts['tried']}"
        logged_after_s = self._first_logged_after_s if why.is_first else LOGGED_AFTER_S
        if for_s >= logged_after_s and not self._is_logged:
            self._is_logged = True
            cure = f"\n  hint: {_cure_of_away(self._settings)}" if why.is_first else ""
            logger.warning("%s; retrying%s", self.problem, cure)

    def _on_answered(self) -> None:
        if self._is_logged:
            logger.info("the cluster answers again")
        self.problem, self._is_logged = "", False


def give_up_error(again: RetriableFailure, settings: KafkaSettings) -> HeadwaterError:
    if isinstance(again, UnknownTopic):
        return LogRejected(again.reason, hint="create it, or correct its name", **again.facts)
    if isinstance(again, DiskRejectsWrites):
        if has_no_room(again.reason):
            return DiskFull(again.reason, hint=HINT, **again.facts)
        hint = "free some space on the disk of the log, or see to it; everything then goes on"
        return LogUnavailable(again.reason, hint=hint, **again.facts)
    if isinstance(again, NoBroker):
        return LogUnavailable(again.reason, hint=_cure_of_away(settings), **again.facts)
    hint = f"is the cluster at {', '.join(settings.bootstrap)} up?"
    if again.reason == CLOSED and not settings.security.has_user:
        hint += " Where clients must authenticate, set `security.protocol` and `security.user`"
    return LogUnavailable(again.reason, hint=hint, **again.facts)


def _cure_of_away(settings: KafkaSettings) -> str:
    hint = "start the cluster, or correct `bootstrap`"
    if not settings.security.is_encrypted:
        hint += "; for a cluster that speaks TLS set `security.protocol`"
    return hint
