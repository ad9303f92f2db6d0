"""Files as a source, local or in S3: JSON lines, CSV, Parquet, text; new, growing, rotated."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from importlib.metadata import version

from headwater.connectors.files.line_parser import FileOrigin
from headwater.connectors.files.scanner import DirectoryScanner
from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.storage import FileStorage
from headwater.connectors.left_out_tables import LeftOutTables
from headwater.connectors.source import Control, Remark, SourceContext
from headwater.core_log.client.gather import in_thread
from headwater.core_log.foundation.errors import Diagnostic, HeadwaterError, SourceRejected
from headwater.core_log.model.changes import ChangeBatch, Positions
from headwater.core_log.model.table_schema import TableId, TableSchema

MISSING = "no files"
"""Name of the remark about missing files."""
LOOKING_SHARE = 10
"""A scan may take at most this fraction of the time."""


class FilesSource:
    """Exactly once: every row of every file enters the log once, in spite of crashes.

    Reads JSON lines, CSV, Parquet and text, plain or compressed, from a directory or from S3, and
    continues with new content. Reading and parsing run in a thread, one batch at a time, so that
    memory does not depend on the size of a file.
    """

    Settings = FilesSettings

    def __init__(self, settings: FilesSettings, context: SourceContext) -> None:
        self._settings, self._context = settings, context

    async def changes(self, resume_from: Positions) -> AsyncGenerator[ChangeBatch, None]:
        context, storage = self._context, self._storage()
        scanner = DirectoryScanner(self._settings, storage, self._origin(), resume_from)
        left_out = LeftOutTables(context, matched_by="path")
        is_missing = await in_thread(partial(self._report_missing, storage))
        while True:
            began_ms = context.clock.monotonic_ms()
            has_news = False
            async with aclosing(self._scan(scanner, left_out)) as batches:
                async for batch in batches:
                    has_news = True
                    yield batch
                    if is_missing:
                        is_missing = False
                        context.report(Remark(MISSING, None))
            left_out.keep(scanner.tables)
            left_out.check_some_left(scanner.tables)
            if context.until_end:
                if has_news:
                    continue  # content that arrived while we were reading
                return
            took_ms = context.clock.monotonic_ms() - began_ms
            pause_ms = max(self._settings.poll_ms, storage.poll_ms_min)
            if not has_news:
                pause_ms = max(pause_ms, LOOKING_SHARE * took_ms)
            await asyncio.sleep(pause_ms / 1_000)

    async def _scan(
        self, scanner: DirectoryScanner, left_out: LeftOutTables
    ) -> AsyncGenerator[ChangeBatch, None]:
        """Once, at all files, without what must not enter the log."""
        context = self._context
        batches = scanner.batches(now_ms=context.clock.now_ms(), is_last=context.until_end)
        try:
            while (batch := await in_thread(partial(next, batches, None))) is not None:
                if refused := await left_out.find_refused(batch.tables):
                    batch = scanner.leave_out(refused)
                    if not batch.positions:
                        continue
                yield batch
                for each in scanner.progress.news():
                    context.report(each)
        finally:
            batches.close()
        for each in scanner.progress.news():
            context.report(each)

    async def acknowledge(self, positions: Positions) -> None:
        """Does nothing: files are not changed."""

    async def control(self, control: Control) -> None:
        """Refuses signals: every file is read anyway."""

    async def discover(self) -> Sequence[TableSchema]:
        return await in_thread(self._discover)

    async def row_estimates(self) -> Mapping[TableId, int]:
        storage = self._storage()
        scanner = DirectoryScanner(self._settings, storage, self._origin(), {})
        return await in_thread(scanner.row_estimates)

    async def examine(self) -> Sequence[Diagnostic]:
        return await in_thread(self._findings)

    async def drop(self) -> Sequence[str]:
        return ()

    def _storage(self) -> FileStorage:
        return FileStorage(self._settings, self._context.directory)

    def _origin(self) -> FileOrigin:
        return FileOrigin(self._context.pipeline, version("headwater"))

    def _discover(self) -> list[TableSchema]:
        """Returns each table as its first file shows it."""
        storage = self._storage()
        seen: dict[str, TableSchema] = {}
        scanner = DirectoryScanner(self._settings, storage, self._origin(), {})
        for entry in storage.entries(()):
            if scanner.table_of(entry) in seen:
                continue
            for file_batch in scanner.sample(entry):
                if file_batch.changes is not None:
                    seen[scanner.table_of(entry)] = file_batch.changes.schema
                    break
        return list(seen.values())

    def _report_missing(self, storage: FileStorage) -> bool:
        """Reports a wrong path or an unmounted disk instead of waiting silently."""
        finding = self._missing(storage)
        if finding is not None and self._context.until_end:
            raise SourceRejected(finding.problem, hint=finding.hint, path=self._settings.path)
        self._context.report(Remark(MISSING, finding))
        return finding is not None

    def _missing(self, storage: FileStorage) -> Diagnostic | None:
        """Returns the remark; None if there is a file, or need not be one."""
        entries = storage.entries(())
        scanner = DirectoryScanner(self._settings, storage, self._origin(), {})
        if any(scanner.can_read(entry) for entry in entries):
            return None
        if entries:
            cure = "give format, since the names of the files do not say it"
            return Diagnostic("none of the files has a known ending", cure)
        if self._settings.allow_empty:
            return None
        cure = "correct `path` of the source; if there may be none, set `allow_empty: true`"
        return Diagnostic("no file matches `path`", cure, is_fatal=False)

    def _findings(self) -> list[Diagnostic]:
        storage = self._storage()
        try:
            storage.check()
            missing = self._missing(storage)
        except HeadwaterError as error:
            return [Diagnostic(error.statement, error.hint or "see to it that it can be read")]
        return [] if missing is None else [missing]
