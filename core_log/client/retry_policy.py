"""Retries: the errors to retry, the delays, and the limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.foundation.errors import HeadwaterError, LogRejected, LogUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

DISK_S = 3.0
"""Time for which refused writes may be a short disk problem that is not reported."""

LOGGED_AFTER_S = 2.0
"""Time for which a whole cluster may be unreachable before it is logged; the retries go on for
longer."""


class RetriableFailure(Exception):
    """This attempt failed, but a later one may succeed."""

    def __init__(self, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.reason, self.facts = reason, facts


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
        self, attempt: Callable[[], Awaitable[T]], *, for_ms: int | None = None
    ) -> T:
        """Raises LogUnavailable with the last reason once `for_ms` (a setting) is over."""
        settings, loop = self._settings, asyncio.get_running_loop()
        started = loop.time()
        patience_s = (settings.retry_for_ms if for_ms is None else for_ms) / 1000
        topic_s = settings.unknown_topic_for_ms / 1000
        delay_s = settings.retry_delay_ms / 1000
        while True:
            try:
                done = await attempt()
            except RetriableFailure as again:
                bound_s = patience_s
                if isinstance(again, UnknownTopic):
                    bound_s = min(patience_s, topic_s)
                elif isinstance(again, DiskRejectsWrites):
                    bound_s = min(patience_s, DISK_S)
                elif isinstance(again, NoBroker):
                    self._on_away(again, loop.time() - started)
                    if again.is_first:
                        bound_s = min(patience_s, settings.first_answer_ms_max / 1000)
                if loop.time() - started + delay_s > bound_s:
                    raise give_up_error(again, settings) from again
            else:
                self._on_answered()
                return done
            # Jitter keeps clients that lost the same broker from reconnecting at the same time.
            await asyncio.sleep(delay_s * (0.5 + self._random.random() / 2))
            delay_s = min(delay_s * 2, settings.retry_delay_ms_max / 1000)

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
        hint = "free some space on the disk of the log, or see to it; everything then goes on"
        return LogUnavailable(again.reason, hint=hint, **again.facts)
    if isinstance(again, NoBroker):
        return LogUnavailable(again.reason, hint=_cure_of_away(settings), **again.facts)
    hint = f"is the cluster at {', '.join(settings.bootstrap)} up?"
    return LogUnavailable(again.reason, hint=hint, **again.facts)


def _cure_of_away(settings: KafkaSettings) -> str:
    hint = "start the cluster, or correct `bootstrap`"
    if not settings.security.is_encrypted:
        hint += "; for a cluster that speaks TLS set `security.protocol`"
    return hint
