"""A broker in a thread of this process, whose files can be made to fail."""

import asyncio
import threading
from pathlib import Path

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings
from headwater.core_log.storage.files import OsFiles
from scripts.free_port import free_port
from tests.fakes import FaultyFiles

STOP_S_MAX = 120


class BrokerThread:
    """Has the manners of a BrokerProcess, but cannot be killed."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.files = FaultyFiles(OsFiles())
        self._settings = BrokerSettings.model_validate(
            {**settings, "data": data, "listen": self.address}
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._running: RunningBroker | None = None

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def start(self) -> None:
        starting = RunningBroker.start(self._settings, files=self.files)
        self._running = asyncio.run_coroutine_threadsafe(starting, self._loop).result()

    def stop(self) -> None:
        assert self._running is not None, "what is stopped has been started"
        stopping = self._running.stop()
        asyncio.run_coroutine_threadsafe(stopping, self._loop).result(STOP_S_MAX)
        self._running = None

    def close(self) -> None:
        if self._running is not None:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
