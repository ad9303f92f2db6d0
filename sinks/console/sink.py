"""Prints changes as they arrive, with decimals and dates in readable form."""

import sys
from collections.abc import Sequence
from typing import TextIO

import pyarrow as pa

from headwater.core_log.foundation.diagnostic import Diagnostic
from headwater.core_log.foundation.errors import SinkRejected
from headwater.core_log.foundation.name_patterns import Patterns
from headwater.core_log.model.table_schema import TableSchema
from headwater.sinks.console.settings import ConsoleSettings
from headwater.sinks.sink import AppliedOffsets, SinkContext, Slice


class ConsoleSink:
    """Prints changes, at least once.

    Standard output cannot store offsets, so the pipeline's consumer group does.
    """

    Settings = ConsoleSettings

    def __init__(
        self, settings: ConsoleSettings, context: SinkContext, output: TextIO | None = None
    ) -> None:
        self._settings, self._output = settings, output or sys.stdout
        self._wanted, self._left = Patterns(settings.tables), settings.limit

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        return None

    async def apply(self, part: Slice) -> None:
        from headwater.sinks.console.lines import json_lines, people_lines

        write = json_lines if self._settings.format == "json" else people_lines
        async for changes in part.changes():
            if self._left == 0:
                return
            if not self._wanted.matches(str(changes.schema.table)):
                continue
            if self._left is not None:
                shown = min(self._left, len(changes))
                changes = changes.take(pa.array(range(shown), pa.int64()))
                self._left -= shown
            self._print(write(changes))

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        shown = [str(schema.table) for schema in schemas if self._wanted.matches(str(schema.table))]
        return [f"print changes of {table}" for table in sorted(shown)]

    async def examine(self) -> Sequence[Diagnostic]:
        return ()

    async def drop(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        """Does nothing: standard output does not belong to the sink."""

    def _print(self, text: str) -> None:
        try:
            self._output.write(text)
            self._output.flush()
        except BrokenPipeError:
            raise SinkRejected(
                "standard output is closed", hint="take out the console sink, or restart"
            ) from None
