"""Retries: the errors to retry, the delays, and the limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from random import Random
from typing import TypeVar

from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.disk_space import HINT, has_no_room
from headwater.core_log.foundation.errors import (
    DiskFull,
    HeadwaterError,
    LogRejected,
    LogUnavailable,
)
from headwater.core_log.links.connection import CLOSED, RetriableFailure

logger = logging.getLogger(__name__)

T = TypeVar("T")

DISK_S = 3.0
"""Time for which refused writes may be a short disk problem that is not reported."""

LOGGED_AFTER_S = 2.0
"""Time for which a whole cluster may be unreachable before it is logged; the retries go on for
longer."""


class NoBroker(RetriableFailure):
    """No address of the cluster answers."""

    def __init__(self, *, tried: str, is_first: bool) -> None:
        super().__init__("no broker of the cluster answers", tried=tried)
        self.is_first = is_first
        """Whether no broker has ever answered: then the address may be wrong as well."""


class UnknownTopic(RetriableFailure):
    """The cluster does not know the topic (yet)."""


class DiskRejectsWrites(RetriableFailure):
    """The disk of the log accepts no writes at the moment; waiting callers should learn it soon."""


OF_THEIR_OWN = (NoBroker, UnknownTopic, DiskRejectsWrites)
"""Failures that name their own cause."""


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
