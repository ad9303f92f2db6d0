"""Files as a sink, local or in S3: every change appended, as Parquet or JSON lines."""

import hashlib
import json
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from uuid import uuid4

import pyarrow as pa

from headwater.core_log.client.gather import in_thread
from headwater.core_log.foundation.errors import (
    Diagnostic,
    Fenced,
    HeadwaterError,
    SinkRejected,
    failures_named,
)
from headwater.core_log.model.table_schema import TableId, TableSchema
from headwater.core_log.objects.store import SINK_ERRORS, ObjectStore, store_of
from headwater.sinks.files.manifest import OURS, CommittedFile, Intent, Manifest, ManifestCommit
from headwater.sinks.files.settings import FilesSinkSettings
from headwater.sinks.files.staged_files import StagedFile, Staging, discard_scratch, make_scratch
from headwater.sinks.object_names import hive_table_directory
from headwater.sinks.sink import AppliedOffsets, SinkContext, Slice, TableContents

ID_DIGITS = 16


class FilesSink:
    """Exactly once for readers who go by the manifest; for all others nothing is missing and
    nothing is torn.

    Files cannot be changed together, so that a crash can leave files of a slice that is not
    committed; they are removed when the sink runs again, or replaced where it makes the same once
    more. Writing and sending happen in a thread, a batch at a time.
    """

    Settings = FilesSinkSettings

    def __init__(
        self, settings: FilesSinkSettings, context: SinkContext, *, store: ObjectStore | None = None
    ) -> None:
        self._settings, self._context = settings, context
        self._given_store = store
        self._opened: tuple[ObjectStore, Manifest] | None = None
        self._writer = uuid4().hex
        self._is_clean = False
        """Whether nothing is left of runs that broke off."""
        self._claimed: set[TableId] = set()

    async def committed_offsets(self, topics: Sequence[str]) -> AppliedOffsets | None:
        head = await in_thread(lambda: self._target()[1].head())
        return {part: applied for part, applied in head.offsets.items() if part.topic in topics}

    async def apply(self, part: Slice) -> None:
        store, manifest = self._target()
        head = await in_thread(manifest.head)
        check_start(part, head)
        intent_id = id_of(part)
        scratch = await in_thread(lambda: make_scratch(store, sink=self._sink, writer=self._writer))
        staging = Staging(scratch, self._settings, stem=f"{head.sequence + 1:020d}-{intent_id}")
        try:
            async for changes in part.changes():
                with failures_named(table=str(changes.schema.table)):
                    await in_thread(partial(staging.add, changes))
            await in_thread(lambda: self._commit(part, head, intent_id, staging.finish()))
        finally:
            staging.abandon()
            discard_scratch(scratch)

    async def plan(self, schemas: Sequence[TableSchema]) -> Sequence[str]:
        store, _ = self._target()
        return [
            f"put {self._settings.format} files of table {schema.table} under"
            f" {store.address(hive_table_directory(schema.table))}"
            for schema in schemas
        ]

    async def examine(self) -> Sequence[Diagnostic]:
        store, _ = self._target()
        try:
            await in_thread(lambda: store.check(writes=True))
        except HeadwaterError as error:
            return [Diagnostic(error.statement, error.hint or "see to it that it can be written")]
        return []

    async def drop(self) -> Sequence[str]:
        return await in_thread(self._drop)

    @asynccontextmanager
    async def contents(
        self, schema: TableSchema, topics: Collection[str]
    ) -> AsyncIterator[TableContents]:
        """Files are never changed, so a commit stays what it is."""
        from headwater.sinks.files.formats import check_readable, current_rows

        check_readable(self._settings, schema)
        store, manifest = self._target()
        head = await in_thread(manifest.head)

        async def batches() -> AsyncIterator[pa.RecordBatch]:
            rows = await in_thread(lambda: current_rows(store, manifest, head, schema))
            while (batch := await in_thread(lambda: next(rows, None))) is not None:
                yield batch

        offsets = {part: at for part, at in head.offsets.items() if part.topic in topics}
        yield TableContents(offsets, schema.names, batches())

    async def close(self) -> None:
        """Nothing is held between slices."""

    def _target(self) -> tuple[ObjectStore, Manifest]:
        if self._opened is None:
            context, settings = self._context, self._settings
            store = self._given_store or store_of(
                settings.path, settings.s3, directory=context.directory, errors=SINK_ERRORS
            )
            self._opened = store, Manifest(store, self._sink)
        return self._opened

    @property
    def _sink(self) -> str:
        return f"{self._context.pipeline}.{self._context.name}"

    def _commit(
        self, part: Slice, head: ManifestCommit, intent_id: str, staged: list[StagedFile]
    ) -> None:
        """Each step can be the last: what is left is removed by the next run, or done again."""
        store, manifest = self._target()
        files = tuple(each.file for each in staged)
        intent = Intent(head.sequence + 1, intent_id, tuple(each.name for each in files))
        self._claim(each.table for each in files)
        if not self._is_clean:
            head = self._fence(head, intent)
            intent = replace(intent, sequence=head.sequence + 1)
            self._clear_leftovers(head, intent)
        self._is_clean = False
        if files:
            manifest.announce(intent)
        for each in staged:
            with failures_named(table=str(each.file.table)):
                store.upload(each.file.name, each.path)
        commit = self._commit_of(part, head, intent, files)
        if not manifest.add(commit):
            self._check_ours(commit, intent)
        manifest.remember_head()
        if files:
            manifest.withdraw(intent)
        self._is_clean = True

    def _commit_of(
        self, part: Slice, head: ManifestCommit, intent: Intent, files: tuple[CommittedFile, ...]
    ) -> ManifestCommit:
        return ManifestCommit(
            sequence=intent.sequence,
            id=intent.id,
            writer=self._writer,
            offsets={**head.offsets, **part.end},
            files=files,
            cut=None if part.cut is None else part.cut.offset,
            committed_ms=self._context.clock.now_ms(),
        )

    def _check_ours(self, commit: ManifestCommit, intent: Intent) -> None:
        """A commit of that number is there: ours, whose answer got lost, or somebody else's."""
        store, manifest = self._target()
        there = manifest.commit_at(commit.sequence)
        if there is not None and (there.writer, there.id) == (self._writer, commit.id):
            manifest.head()
            return
        if there is not None and there.id != commit.id:
            store.remove(intent.files)
            manifest.withdraw(intent)
        raise fenced_error(intent.sequence)

    def _fence(self, head: ManifestCommit, intent: Intent) -> ManifestCommit:
        """Takes the number that whoever has announced files may still commit under: what is removed
        then can never count."""
        _, manifest = self._target()
        left = [each for each in manifest.intents() if each.sequence > head.sequence]
        if not left:
            return head
        is_same = any(each.id == intent.id for each in left)
        fence = replace(
            head,
            sequence=head.sequence + 1,
            id=intent.id if is_same else "",  # who meant the same names must not remove them
            writer=self._writer,
            files=(),
            committed_ms=self._context.clock.now_ms(),
        )
        if not manifest.add(fence):
            there = manifest.commit_at(fence.sequence)
            if there is None or (there.writer, there.id) != (fence.writer, fence.id):
                raise fenced_error(fence.sequence)
        return manifest.head()

    def _clear_leftovers(self, head: ManifestCommit, intent: Intent) -> None:
        """Removes what earlier runs have put in place and never committed."""
        store, manifest = self._target()
        for left in manifest.intents():
            there = manifest.commit_at(left.sequence)
            counts = {each.name for each in there.files} if there is not None else set()
            keep = counts | (set(intent.files) if left.id == intent.id else set())
            store.remove([name for name in left.files if name not in keep])
            manifest.withdraw(left)

    def _claim(self, tables: Iterable[TableId]) -> None:
        """A table belongs to the sink that wrote it first."""
        store, _ = self._target()
        owner = {"version": 1, "pipeline": self._context.pipeline, "sink": self._context.name}
        mine = json.dumps(owner).encode()
        for table in set(tables) - self._claimed:
            name = claim_of(table)
            if not store.create(name, mine):
                first = json.loads(store.read(name) or mine)
                if first != owner:
                    raise SinkRejected(
                        "the table belongs to another sink",
                        hint="give this sink another path, or route the table to another name",
                        table=str(table),
                        pipeline=first["pipeline"],
                        sink=first["sink"],
                    )
            self._claimed.add(table)

    def _drop(self) -> list[str]:
        store, manifest = self._target()
        files = [each for commit in manifest.commits() for each in commit.files]
        tables = sorted({each.table for each in files})
        for left in manifest.intents():
            store.remove(left.files)
        store.remove([each.name for each in files])
        store.remove([claim_of(table) for table in tables])
        head = manifest.head()
        manifest.forget()
        self._claimed.clear()
        self._is_clean = False
        removed = [f"table {table} under {store.address('')}" for table in tables]
        return removed + (["the manifest"] if head.sequence else [])


def check_start(part: Slice, head: ManifestCommit) -> None:
    """A partition that the target knows nothing of begins with this slice."""
    for partition, applied in part.start.items():
        if head.offsets.get(partition, applied) != applied:
            raise fenced_error(head.sequence + 1)


def fenced_error(sequence: int) -> Fenced:
    return Fenced("another run has moved the target", commit=sequence)


def id_of(part: Slice) -> str:
    """Names of the same range begin alike."""
    edges = [
        sorted((*partition, *applied) for partition, applied in offsets.items())
        for offsets in (part.start, part.end)
    ]
    return hashlib.sha256(json.dumps(edges).encode()).hexdigest()[:ID_DIGITS]


def claim_of(table: TableId) -> str:
    return f"{OURS}/tables/{hive_table_directory(table)}.json"
