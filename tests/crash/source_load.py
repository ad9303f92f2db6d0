"""A writer that goes on whenever its database lets it."""

import threading
import time
from typing import Any, Protocol

from tests.crash.captured_server import CapturedServer

RETRY_S = 0.02


class Writer(Protocol):
    """Whose transactions differ in size, kind and end."""

    rows_per_s: int

    def transact(self, connection: Any) -> int:
        """One transaction; returns how many rows it wrote for good."""
        ...


class SourceLoad:
    """What became of a transaction whose answer was lost is nobody's business: the tables
    themselves say it."""

    def __init__(self, server: CapturedServer, database: str, writer: Writer) -> None:
        self._server, self._database, self._writer = server, database, writer
        self._is_ending = threading.Event()
        self._moved = threading.Condition()
        self._rows, self._has_ended = 0, False
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def wait_for_rows(self, rows: int) -> None:
        """Until so many more have been written."""
        with self._moved:
            goal = self._rows + rows
            self._moved.wait_for(lambda: self._rows >= goal or self._has_ended)
        assert self._rows >= goal, "whoever writes goes on until it is stopped"

    def stop(self) -> None:
        self._is_ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._go_on()
        finally:
            with self._moved:
                self._has_ended = True
                self._moved.notify_all()

    def _go_on(self) -> None:
        while not self._is_ending.is_set():
            try:
                with self._server.connect(self._database) as connection:
                    self._write(connection)
            except Exception as error:
                if not self._server.is_failure(error):
                    raise
                self._is_ending.wait(RETRY_S)

    def _write(self, connection: Any) -> None:
        started, written = time.monotonic(), 0
        while not self._is_ending.is_set():
            rows = self._writer.transact(connection)
            with self._moved:
                self._rows += rows
                self._moved.notify_all()
            written += rows
            ahead_s = written / self._writer.rows_per_s - (time.monotonic() - started)
            if ahead_s > 0:
                self._is_ending.wait(ahead_s)
