"""Reads parts of a slice in other processes, on other machines."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headwater.core_log.client import KafkaLog, KafkaSettings
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.column_history import ColumnHistory
from headwater.core_log.model.table_schema import TableSchema
from headwater.core_log.records import record_views
from headwater.core_log.rows.json import scanner
from headwater.pipelines.file.spec import RouteRule, TransformRule
from headwater.pipelines.journal.schemas import SchemaReader, read_schemas, schemas_home
from headwater.pipelines.loops.deliver.offset_check import check_same_topics
from headwater.pipelines.loops.deliver.slice_reader import Skipped, SliceReader
from headwater.pipelines.loops.deliver.truncate_barriers import TruncateRange, find_barriers
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.functions import ShippedModules, ship_modules
from headwater.sinks.sink import AppliedOffset, AppliedOffsets, Heard, Slice, Truncate

RECORD_BYTES = 256
"""Size of a record in the log, about: a short range is fetched with a matching limit."""


@dataclass(frozen=True, slots=True)
class LogSplitReader:
    """Reads splits. The rejected records are asked for when this is pickled, because they change
    while a slice is applied."""

    settings: KafkaSettings
    rules: Sequence[TransformRule]
    routes: Sequence[RouteRule]
    directory: Path
    """The pipeline file's directory, in which Python transforms are searched."""
    fetch_bytes: int
    skipped: Callable[[], Skipped]
    functions: ShippedModules | None = None
    """Those modules' code, for machines without the directory."""
    newest: dict[str, int] = field(default_factory=dict)
    """The last schema of each requested topic. All readers of a slice use its column names, even if
    a later schema has come meanwhile."""
    names: frozenset[str] = frozenset()
    """Column names, including names of earlier schemas."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        known = {each: set(offsets) for each, offsets in self.skipped().items()}
        rest = (self.settings, tuple(self.rules), tuple(self.routes), self.directory)
        modules = tuple(rule.python.partition(":")[0] for rule in self.rules if rule.python)
        functions = self.functions or (ship_modules(modules, self.directory) if modules else None)
        skipped: Callable[[], Skipped] = partial(dict, known)
        newest = dict(self.newest)
        return LogSplitReader, (*rest, self.fetch_bytes, skipped, functions, newest, self.names)

    async def schemas(self, topic: str) -> Sequence[TableSchema]:
        after_log = self._after_log()
        async with self._open() as log:
            home = schemas_home(topic)
            stored = [each async for each in read_schemas(log, home) if each.topic == topic]
        if stored:
            self.newest[topic] = stored[-1].id
        history = ColumnHistory([each.schema for each in stored], names=self.names)
        return [after_log.schema(view.schema) for view in history.views]

    async def truncates(self, start: AppliedOffsets, end: AppliedOffsets) -> Sequence[Truncate]:
        found: list[Truncate] = []
        async with self._open() as log:
            await check_same_topics(log, end)
            bounds = await log.bounds(end)
            for topic in sorted({part.topic for part in end}):
                ranges = {
                    part: TruncateRange(
                        max(start[part].next_offset, bounds[part].start), applied.next_offset
                    )
                    for part, applied in end.items()
                    if part.topic == topic
                }
                for barrier in await find_barriers(log, ranges):
                    part, offset = next(iter(barrier.items()))
                    place, behind = (
                        AppliedOffset(end[part].topic_id, at) for at in (offset, offset + 1)
                    )
                    found += [
                        Truncate(change, barrier)
                        async for change in self._changes(
                            {part: place}, {part: behind}, fetch_bytes=RECORD_BYTES
                        )
                    ]
        return found

    def read(
        self, start: AppliedOffsets, end: AppliedOffsets, heard: Heard = lambda _: None
    ) -> Iterator[TableChanges]:
        records = sum(
            applied.next_offset - start[part].next_offset for part, applied in end.items()
        )
        if records >= record_views.WORTH_RECORDS:  # splits have a check, samples do not
            record_views.wait_until_loaded()
            scanner.wait_until_loaded()
        changes = self._changes(start, end, heard, fetch_bytes=records * RECORD_BYTES)
        with asyncio.Runner() as runner:
            # `runner.run` would set a signal handler for each, and format every result as text.
            loop = runner.get_loop()
            try:
                while (found := loop.run_until_complete(_next(changes))) is not None:
                    yield found
            finally:
                loop.run_until_complete(changes.aclose())

    async def _changes(
        self,
        start: AppliedOffsets,
        end: AppliedOffsets,
        heard: Heard = lambda _: None,
        *,
        fetch_bytes: int,
    ) -> AsyncGenerator[TableChanges, None]:
        async with self._open() as log:
            await check_same_topics(log, start)
            reader = SliceReader(
                log,
                after_log=self._after_log(),
                fetch_bytes=min(self.fetch_bytes, max(fetch_bytes, 1)),
                skipped=self.skipped,
                is_alone=False,
                schemas=SchemaReader(log, names=self.names, newest=self.newest),
            )
            part = Slice(log=log, start=start, end=end, cut=None, read=reader.read)
            async with aclosing(reader.read(part)) as read:
                async for changes in read:
                    yield changes
            heard([*reader.counts.values()])

    def _after_log(self) -> RowTransforms:
        directory = self.directory if self.functions is None else self.functions.put_down()
        return RowTransforms(self.rules, self.routes, directory=directory)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[KafkaLog]:
        log = KafkaLog(self.settings)
        try:
            yield log
        finally:
            await log.close()


async def _next(changes: AsyncGenerator[TableChanges, None]) -> TableChanges | None:
    return await anext(changes, None)
