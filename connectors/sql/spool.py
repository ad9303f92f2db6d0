"""Rows on disk until all of a table was read, so that a half-read table never replaces the old
one."""

from collections.abc import Iterator
from tempfile import TemporaryFile, gettempdir
from types import TracebackType
from typing import IO

import pyarrow as pa

from headwater.core_log.foundation.errors import SourceUnavailable


class Spool:
    """Batches of one schema in an unnamed file that is deleted when it is closed."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, rows: pa.RecordBatch) -> None:
        try:
            if self._writer is None:
                self._file = TemporaryFile()  # noqa: SIM115, closed at the end
                self._writer = pa.ipc.new_stream(self._file, rows.schema)
            self._writer.write_batch(rows)
        except OSError as error:
            raise SourceUnavailable(
                "rows cannot be stored on disk until their table is read",
                directory=gettempdir(),
                why=error.strerror or str(error),
                hint="free space there, or set another directory in the variable TMPDIR",
            ) from None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the batches in order."""
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
