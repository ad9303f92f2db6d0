"""Tells a webhook what needs a person: quarantines, tables that are left out, dead letters."""

import asyncio
import http.client
import json
import logging
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from headwater.core_log.foundation.clock import Clock
from headwater.pipelines.reports import (
    DeadLettersAdded,
    RemarksMade,
    Report,
    StateChanged,
    TaskState,
)

if TYPE_CHECKING:
    from headwater.pipelines.file.loader import LoadedPipeline

logger = logging.getLogger(__name__)

WAITING_MAX = 1_000
"""Notifications that wait for a webhook; later ones are dropped, and their number is logged."""
AGAIN_MS = 3_600_000
"""After this time the same problem is told again."""
COLLECT_S = 10.0
"""Dead letters of this time are told together."""
TIMEOUT_S, FINISH_S = 10.0, 5.0
PAUSES_S = (1.0, 5.0, 30.0, 60.0)
"""Before the next attempts; the last one is repeated."""
QUARANTINED, LEFT_OUT, DEAD_LETTERS = "quarantined", "left_out", "dead_letters"


@dataclass(frozen=True, slots=True)
class Notification:
    """The JSON body of one request."""

    kind: str
    """`quarantined`, `left_out` or `dead_letters`."""
    pipeline: str
    task: str
    table: str
    """Empty if the whole task is meant."""
    reason: str
    """The problem with its cure, as `headwater status` shows it."""
    records: int
    """Dead letters; otherwise 0."""
    at_ms: int
    text: str
    """All of it in one sentence."""


Send = Callable[["NotifyTarget", bytes], None]
"""Sends one body, or raises `OSError`; it blocks."""


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    url: str
    token: str


@dataclass(slots=True)
class Outbox:
    """The notifications of one pipeline, and a thread for them: no webhook waits for another's."""

    waiting: asyncio.Queue[Notification] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    dropped: int = 0
    thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "webhook"))


class Notifier:
    """Call it with every report; nothing here waits but `run`."""

    def __init__(self, clock: Clock, *, send: Send | None = None) -> None:
        self._clock, self._send = clock, send or post
        self._targets: dict[str, NotifyTarget] = {}
        self._scrubs: dict[str, Callable[[str], str]] = {}
        self._told: dict[tuple[str, ...], int] = {}
        self._letters: dict[tuple[str, str, str], tuple[int, str]] = {}
        self._outboxes: dict[str, Outbox] = {}
        self._senders: asyncio.TaskGroup | None = None
        self._has_letters = asyncio.Event()

    def know(self, loaded: "LoadedPipeline") -> None:
        """Notes where a pipeline's notifications go, by its file as it is now."""
        settings = loaded.spec.notify
        self._scrubs[loaded.name] = loaded.redaction.scrub
        if url := settings.url.get_secret_value():
            self._targets[loaded.name] = NotifyTarget(url, settings.token.get_secret_value())
            if loaded.name not in self._outboxes:
                self._outboxes[loaded.name] = outbox = Outbox()
                if self._senders is not None:
                    self._senders.create_task(self._send_all(outbox))
        else:
            self._targets.pop(loaded.name, None)

    def __call__(self, report: Report) -> None:
        if report.pipeline not in self._targets:
            return
        match report:
            case StateChanged(state=TaskState.QUARANTINED):
                self._tell_once(QUARANTINED, report.task, report.table, report.reason, report)
            case RemarksMade():
                reason = "; ".join(filter(None, (report.problem, report.hint)))
                for table in report.left_out:
                    self._tell_once(LEFT_OUT, report.task, table, reason, report)
            case DeadLettersAdded():
                key = (report.pipeline, report.task, report.table)
                records = self._letters.get(key, (0, ""))[0] + report.records
                self._letters[key] = (records, report.problem)
                self._has_letters.set()

    async def run(self) -> None:
        """Sends until it is cancelled."""
        async with asyncio.TaskGroup() as self._senders:
            for outbox in self._outboxes.values():
                self._senders.create_task(self._send_all(outbox))
            await self._collect_letters()

    async def _send_all(self, outbox: Outbox) -> None:
        try:
            while True:
                await self._deliver(await outbox.waiting.get(), outbox)
                outbox.waiting.task_done()
        finally:
            outbox.thread.shutdown(wait=False)

    async def finish(self) -> None:
        """Waits a moment until what is known has been sent, while `run` still runs."""
        self._put_letters()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_S):
                await asyncio.gather(*(each.waiting.join() for each in self._outboxes.values()))

    def _tell_once(
        self, kind: str, task: str, table: str, reason: str, report: StateChanged | RemarksMade
    ) -> None:
        """A table that is retried is quarantined again and again for the same reason."""
        first_line = reason.partition("\n")[0]
        key, now_ms = (kind, report.pipeline, task, table, first_line), self._clock.now_ms()
        if now_ms - self._told.get(key, -AGAIN_MS) < AGAIN_MS:
            return
        self._told[key] = now_ms
        self._put(kind, report.pipeline, task, table, reason)

    async def _collect_letters(self) -> None:
        while True:
            await self._has_letters.wait()
            await asyncio.sleep(COLLECT_S)
            self._has_letters.clear()
            self._put_letters()

    def _put_letters(self) -> None:
        letters, self._letters = self._letters, {}
        for (pipeline, task, table), (records, problem) in letters.items():
            self._put(DEAD_LETTERS, pipeline, task, table, problem, records=records)

    def _put(
        self, kind: str, pipeline: str, task: str, table: str, reason: str, *, records: int = 0
    ) -> None:
        scrub = self._scrubs.get(pipeline, str)
        subject = f"{pipeline}/{task}" + (f" {table}" if table else "")
        what = f"{records} dead letters" if records else kind.replace("_", " ")
        reason = scrub(reason)
        text = f"{subject}: {what}: {' '.join(reason.split())}"
        made = Notification(
            kind, pipeline, task, table, reason, records, self._clock.now_ms(), text
        )
        outbox = self._outboxes[pipeline]
        try:
            outbox.waiting.put_nowait(made)
        except asyncio.QueueFull:
            outbox.dropped += 1

    async def _deliver(self, notification: Notification, outbox: Outbox) -> None:
        """Tries until the webhook takes it, or the pipeline has none any more."""
        body = json.dumps(asdict(notification)).encode()
        for attempt in count():
            target = self._targets.get(notification.pipeline)
            if target is None:
                return
            try:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(outbox.thread, self._send, target, body)
            except OSError as error:
                if attempt == 0:
                    scrub = self._scrubs[notification.pipeline]
                    logger.warning("the webhook has failed: %s", scrub(str(error)))
                await asyncio.sleep(PAUSES_S[min(attempt, len(PAUSES_S) - 1)])
                continue
            if outbox.dropped:
                logger.warning("%d notifications did not reach the webhook", outbox.dropped)
                outbox.dropped = 0
            return


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its body."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(target: NotifyTarget, body: bytes) -> None:
    headers: Mapping[str, str] = {"Content-Type": "application/json"}
    if target.token:
        headers = {**headers, "Authorization": f"Bearer {target.token}"}
    request = urllib.request.Request(target.url, body, dict(headers), method="POST")
    opener = urllib.request.build_opener(_NoRedirects())
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            answer.read(1 << 16)
    except http.client.HTTPException as error:
        raise ConnectionError(f"the answer is no HTTP: {type(error).__name__}") from error
