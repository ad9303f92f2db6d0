"""A decision is answered when it is committed, sees all before it, and outlives a restart."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from headwater.core_log.foundation.errors import CorruptLog, StorageFailed
from headwater.core_log.model.log import StoredBatch, StoredRecord
from headwater.core_log.records.batch_header import BatchHeader
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from headwater.core_log.replication import metadata_log
from headwater.core_log.replication.controller import Controller
from headwater.core_log.replication.decisions import Decision, NewTopic, RequestRefusal
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage
from headwater.core_log.replication.metadata_log import MetadataLog
from headwater.core_log.replication.metadata_records import FeatureLevelRecord, decode_record
from headwater.core_log.replication.snapshots import (
    RECORDS_PER_BATCH,
    MetadataSnapshot,
    MetadataSnapshots,
    decode_snapshot,
    encode_snapshot,
)
from headwater.core_log.replication.topic_config import TopicConfigs
from headwater.core_log.replication.voters import Voter
from tests.fakes import MemoryFiles

DIRECTORY = Path("/data/log/__cluster_metadata-0")


class ScriptedLog:
    """One partition in memory. What is appended becomes durable when the test says so."""

    def __init__(self, batches: Sequence[bytes] = (), *, is_prompt: bool = True) -> None:
        self.batches, self.is_prompt = list(batches), is_prompt
        self.leader_epoch = 3
        self.durable_offset = self.end_offset
        self.failure: StorageFailed | None = None
        self.start_offset = 0
        self._moved = asyncio.Event()

    @property
    def end_offset(self) -> int:
        return BatchHeader.read(self.batches[-1]).next_offset if self.batches else 0

    @property
    def high_watermark(self) -> int:
        return self.durable_offset

    def append(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> int:
        if self.failure is not None:
            raise self.failure
        plain = [PlainRecord(key, value, timestamp_ms=7) for key, value in records]
        batch = encode_batch(plain, base_offset=self.end_offset, leader_epoch=self.leader_epoch)
        self.batches.append(bytes(batch))
        if self.is_prompt:
            self.durable_offset = self.end_offset
        return self.end_offset

    async def durable(self, end_offset: int) -> None:
        while self.durable_offset < end_offset:
            if self.failure is not None:
                raise self.failure
            self._moved.clear()
            await self._moved.wait()

    def sync(self) -> None:
        self.durable_offset = self.end_offset
        self._moved.set()

    def fail(self) -> None:
        self.failure = StorageFailed("disk is full")
        self._moved.set()

    def shorten(self, snapshot: MetadataSnapshot) -> None:
        """Whole batches go, as whole segments do."""
        self.start_offset = offset = snapshot.end_offset
        self.batches = [
            batch for batch in self.batches if BatchHeader.read(batch).next_offset > offset
        ] or self.batches[-1:]

    def voters_at(self, end_offset: int) -> tuple[Voter, ...]:
        return ()

    def read_from(self, offset: int) -> Iterator[StoredBatch]:
        for batch in self.batches:
            header, records = decode_batch(batch)
            if header.next_offset <= offset:
                continue
            yield StoredBatch(header, [StoredRecord(r.offset, r.key, r.value) for r in records])


async def nothing() -> None:
    """Nothing belongs to the image."""


class Scene:
    """A metadata log over a scripted partition, with a controller that decides on its image."""

    def __init__(self, log: ScriptedLog | None = None, files: MemoryFiles | None = None) -> None:
        self.log, self.files = log or ScriptedLog(), files or MemoryFiles()
        self.heard: list[MetadataChanges] = []
        self.metadata = MetadataLog(self.log, MetadataSnapshots(self.files, DIRECTORY), self.hear)
        ids = iter(range(1 << 20, 1 << 30))
        self.controller = Controller(
            self.metadata.image, TopicConfigs({}), new_id=lambda: UUID(int=next(ids))
        )

    async def load(self) -> None:
        self.metadata.load_snapshot()
        await self.metadata.settle()
        await self.metadata.listen(nothing)

    async def hear(self, changes: MetadataChanges) -> None:
        self.heard.append(changes)

    async def register(self) -> int:
        return await self.metadata.change(
            lambda: self.controller.register_broker(1, UUID(int=1), host="h", port=1)
        )

    async def create(self, name: str, partitions: int = 1) -> object:
        wanted = NewTopic(name, partitions)
        answer = await self.metadata.change(lambda: self.controller.create_topics([wanted]))
        return answer[name]

    async def restarted(self) -> "Scene":
        scene = Scene(ScriptedLog(self.log.batches), self.files)
        await scene.load()
        return scene


def contents(scene: Scene) -> object:
    image = scene.metadata.image
    return image.topics, image.brokers, image.features, image.next_producer_id, image.end_offset


async def test_an_image_is_built_again_from_the_log() -> None:
    scene = Scene()
    await scene.load()
    await scene.register()
    await scene.create("t", 3)

    again = await scene.restarted()

    assert contents(again) == contents(scene)
    assert list(again.metadata.image.topics) == ["t"]
    assert not again.heard, "nothing changes while the past is read"


async def test_records_read_at_the_start_count_only_once_they_are_committed() -> None:
    scene = Scene()
    await scene.register()
    again = Scene(ScriptedLog(scene.log.batches))
    again.log.durable_offset = 0
    loading = asyncio.create_task(again.load())
    await asyncio.sleep(0)
    assert not again.metadata.image.brokers and not loading.done()

    again.log.sync()
    await loading

    assert contents(again) == contents(scene)


async def test_a_snapshot_may_end_in_the_middle_of_a_batch() -> None:
    scene = Scene()
    await scene.register()
    await scene.create("t", 3)
    shorter = MetadataImage()
    records = [
        decode_record(record.value or b"")
        for batch in scene.log.read_from(0)
        for record in batch.records
    ]
    shorter.apply(records[:3], 3)
    snapshot = MetadataSnapshot(3, 3, list(shorter.records()))
    MetadataSnapshots(scene.files, DIRECTORY).write(snapshot, now_ms=1)

    assert contents(await scene.restarted()) == contents(scene)


async def test_a_decision_shows_only_when_it_is_committed() -> None:
    scene = Scene(ScriptedLog())
    await scene.load()
    await scene.register()
    scene.log.is_prompt = False
    creation = asyncio.create_task(scene.create("t"))
    await asyncio.sleep(0)
    assert scene.log.end_offset > scene.log.durable_offset
    assert not scene.metadata.image.topics and not creation.done()

    scene.log.sync()
    await creation

    assert list(scene.metadata.image.topics) == ["t"]
    assert len(scene.heard[-1].topics_created) == 1


async def test_two_who_create_the_same_topic_at_once_make_one() -> None:
    scene = Scene()
    await scene.register()
    scene.log.is_prompt = False
    both = [asyncio.create_task(scene.create("t")) for _ in range(2)]
    for _ in range(5):
        await asyncio.sleep(0)
        scene.log.sync()

    outcomes = [await each for each in both]

    assert [isinstance(each, RequestRefusal) for each in outcomes] == [False, True]
    assert len(scene.metadata.image.topics_by_id) == 1


async def test_a_cancelled_decision_counts_before_the_next_one() -> None:
    scene = Scene()
    await scene.register()
    scene.log.is_prompt = False
    impatient = asyncio.create_task(scene.create("t"))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    scene.log.sync()

    outcome = await scene.create("t")

    assert isinstance(outcome, RequestRefusal)
    assert contents(await scene.restarted()) == contents(scene)


async def test_a_decision_that_cannot_be_written_changes_nothing_and_may_be_tried_again() -> None:
    scene = Scene()
    await scene.register()
    before = contents(scene)
    scene.log.failure = StorageFailed("disk is full")
    with pytest.raises(StorageFailed):
        await scene.create("t")
    assert contents(scene) == before

    scene.log.failure = None
    await scene.create("t")

    assert list(scene.metadata.image.topics) == ["t"]


async def test_a_decision_waits_until_its_record_is_durable() -> None:
    scene = Scene()
    await scene.register()
    scene.log.is_prompt = False
    creation = asyncio.create_task(scene.create("t"))
    await asyncio.sleep(0)
    scene.log.fail()
    with pytest.raises(StorageFailed):
        await creation
    asked: list[int] = []

    def decide() -> Decision[None]:
        asked.append(1)
        return Decision(None)

    with pytest.raises(StorageFailed):
        await scene.metadata.change(decide)

    assert not asked and not scene.metadata.image.topics


async def test_validating_writes_nothing() -> None:
    scene = Scene()
    await scene.register()
    end_offset = scene.log.end_offset

    answer = await scene.metadata.change(
        lambda: scene.controller.create_topics([NewTopic("t")]), validate_only=True
    )

    assert not isinstance(answer["t"], RequestRefusal)
    assert scene.log.end_offset == end_offset and not scene.metadata.image.topics


async def test_a_snapshot_replaces_the_log_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 20)
    scene = Scene()
    await scene.register()
    await scene.create("t", 3)
    assert not await scene.metadata.snapshot_if_grown(now_ms=1)
    for _ in range(10):
        await scene.register()
    batch_count = len(scene.log.batches)

    assert await scene.metadata.snapshot_if_grown(now_ms=1)

    end = scene.metadata.image.end_offset
    assert scene.files.names(DIRECTORY) == [f"{end:020d}-0000000003.checkpoint"]
    assert scene.log.start_offset == end and len(scene.log.batches) < batch_count
    assert contents(await scene.restarted()) == contents(scene)
    assert not await scene.metadata.snapshot_if_grown(now_ms=1)

    await scene.create("u")

    assert contents(await scene.restarted()) == contents(scene)


async def test_a_newer_snapshot_takes_the_place_of_an_older_one() -> None:
    files = MemoryFiles()
    snapshots = MetadataSnapshots(files, DIRECTORY)

    for end_offset in (5, 1_000_000_000_000, 70):
        snapshots.write(MetadataSnapshot(end_offset, 1, []), now_ms=1)

    newest = snapshots.newest()
    assert newest is not None and newest.end_offset == 1_000_000_000_000
    assert len(files.names(DIRECTORY)) == 2, "an older one written late is kept out of the way"


async def test_records_missing_between_snapshot_and_log_are_damage() -> None:
    scene = Scene()
    for _ in range(4):
        await scene.register()

    for batches in (scene.log.batches[1:], [*scene.log.batches[:1], *scene.log.batches[2:]]):
        with pytest.raises(CorruptLog, match="missing"):
            await Scene(ScriptedLog(batches)).load()


async def test_a_log_that_ends_before_its_snapshot_is_damage() -> None:
    scene = Scene()
    await scene.register()
    MetadataSnapshots(scene.files, DIRECTORY).write(MetadataSnapshot(99, 1, []), now_ms=1)

    with pytest.raises(CorruptLog, match="missing"):
        await scene.restarted()


@pytest.mark.parametrize("count", [0, 1, RECORDS_PER_BATCH - 2, RECORDS_PER_BATCH, 2500])
def test_a_snapshot_of_any_size_is_read_back(count: int) -> None:
    records = [FeatureLevelRecord(f"feature-{each}", each) for each in range(count)]
    snapshot = MetadataSnapshot(12345, 7, list(records))

    assert decode_snapshot(encode_snapshot(snapshot, now_ms=1)) == snapshot
    assert snapshot.name == "00000000000000012345-0000000007.checkpoint"


@pytest.mark.slow
def test_a_damaged_snapshot_is_never_half_believed() -> None:
    records = [FeatureLevelRecord(f"feature-{each}", each) for each in range(3000)]
    files = MemoryFiles()
    snapshots = MetadataSnapshots(files, DIRECTORY)
    whole = encode_snapshot(MetadataSnapshot(9, 1, list(records)), now_ms=1)
    cuts = [whole[:size] for size in range(0, len(whole), len(whole) // 50)]
    batches = list(iterate_batches(whole))
    gaps = [b"".join([*batches[:index], *batches[index + 1 :]]) for index in range(len(batches))]
    flips = [bytearray(whole) for _ in range(50)]
    for index, flipped in enumerate(flips):
        flipped[61 + index * (len(whole) // 51)] ^= 4

    for damaged in [*cuts, *gaps, *flips]:
        files.replace(DIRECTORY / MetadataSnapshot(9, 1, []).name, bytes(damaged))
        with pytest.raises(CorruptLog, match="damaged"):
            snapshots.newest()
