"""The process that runs pipelines, as far as commands see it: a log, a board and the HTTP API."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.pipelines.watching.http_api import HttpApi, ReportStream, RequestAnswer
from headwater.pipelines.watching.status import StatusBoard

T = TypeVar("T")


class OwnerThread:
    """Commands want the main thread for their signals, so the owner has a loop in another."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.board, self.stream = StatusBoard(SystemClock()), ReportStream()
        self.log = self.do(EmbeddedLog.open(BrokerSettings(data=data, listen="127.0.0.1:0")))
        self._api: HttpApi | None = None

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def serve(self) -> None:
        """From now on there is an HTTP API, and `endpoint.json` says where."""
        answering = RequestAnswer(self.board, self.stream, self.log, SystemClock(), self._hand_over)
        self._api = HttpApi(answering, token=self.log.running.token)
        self.log.running.write_endpoint(self.do(self._api.start()))

    async def _hand_over(self, body: bytes) -> Mapping[str, object]:
        return {"bytes": len(body)}

    def stop(self) -> None:
        if self._api is not None:
            self.do(self._api.stop())
        self.do(self.log.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def owning(data: Path, *, has_pipelines: bool = True) -> Iterator[OwnerThread]:
    owner = OwnerThread(data)
    try:
        if has_pipelines:
            owner.serve()
        yield owner
    finally:
        owner.stop()
