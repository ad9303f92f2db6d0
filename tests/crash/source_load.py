"""A writer that goes on whenever its database lets it."""

import time
from typing import Any, Protocol

from tests.crash.background_writer import BackgroundWriter
from tests.crash.captured_server import CapturedServer

RETRY_S = 0.02


class Writer(Protocol):
    """Whose transactions differ in size, kind and end."""

    rows_per_s: int

    def transact(self, connection: Any) -> int:
        """One transaction; returns how many rows it wrote for good."""
        ...


def source_load(server: CapturedServer, database: str, writer: Writer) -> BackgroundWriter:
    """Counts rows."""

    def work(load: BackgroundWriter) -> None:
        while not load.is_ending.is_set():
            try:
                with server.connect(database) as connection:
                    write_until_it_ends(load, writer, connection)
            except Exception as error:
                if not server.is_failure(error):
                    raise
                load.is_ending.wait(RETRY_S)

    return BackgroundWriter(work)


def write_until_it_ends(load: BackgroundWriter, writer: Writer, connection: Any) -> None:
    started, written = time.monotonic(), 0
    while not load.is_ending.is_set():
        rows = writer.transact(connection)
        load.add(rows)
        written += rows
        ahead_s = written / writer.rows_per_s - (time.monotonic() - started)
        if ahead_s > 0:
            load.is_ending.wait(ahead_s)
