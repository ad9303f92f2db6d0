"""A backup is the log as a power cut at one moment would leave it, whatever goes on meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.core_log.broker.held_log import HOLD, HeldFile, hold, release
from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.errors import ConfigError, CorruptLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import SINK_ERRORS, store_of
from headwater.core_log.records.batch_header import Batch
from headwater.core_log.storage.files import OsFiles
from headwater.pipelines.backup.backup import (
    BackupManifest,
    BackupResult,
    StoredFile,
    back_up,
    backup_names,
    choose_backup,
    chunk_name,
    restore,
)
from headwater.pipelines.backup.held_files import decode_held, encode_held
from tests.builders import START_MS, batch
from tests.contract.records import read_all
from tests.moto_server import client_of

ORDERS, ITEMS = TopicPartition("orders", 0), TopicPartition("items", 0)
FILES = OsFiles()


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[EmbeddedLog]:
    settings = BrokerSettings(data=data, listen="127.0.0.1:0", config={"segment.bytes": "4096"})
    log = await EmbeddedLog.open(settings)
    try:
        yield log
    finally:
        await log.close()


def some(*values: str) -> Batch:
    return Batch(batch(*values), len(values), START_MS)


def store_in(directory: Path) -> DirectoryStore:
    return DirectoryStore(directory / "copies", SINK_ERRORS)


def held_by(log: EmbeddedLog) -> Sequence[HeldFile]:
    return hold(log.running.broker)


def copied(
    log: EmbeddedLog, store: DirectoryStore, *, now_ms: int = START_MS, keep: int | None = None
) -> BackupResult:
    data = log.running.broker.settings.data
    result = back_up(data, held_by(log), store, now_ms=now_ms, keep=keep)
    release(FILES, data)
    return result


@pytest.mark.slow
async def test_a_restored_log_is_the_log_of_that_moment(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"), TopicSettings(name="items"))
        for number in range(100):
            await log.append(ORDERS, some(f"order {number} {'x' * 200}"))
        await log.append(ITEMS, some("item"))
        await log.commit_offsets("readers", {ORDERS: 42})
        held = held_by(log)
        await log.append(ORDERS, some("too late"))
        await log.ensure_topic(TopicSettings(name="later"))
        back_up(tmp_path / "data", held, store, now_ms=START_MS)
        before, topic_id = await read_all(log, ORDERS), await log.topic_id("orders")

    restore(store, choose_backup(store, None), tmp_path / "again")

    async with opened(tmp_path / "again") as log:
        assert await read_all(log, ORDERS) == before[:-1] and before[-1] == "too late"
        assert await read_all(log, ITEMS) == ["item"]
        assert await log.topic_id("orders") == topic_id
        assert await log.committed_offsets("readers") == {ORDERS: 42}
        assert {each.topic for each in log.running.broker.partitions} >= {"orders", "items"}
        assert "later" not in {each.topic for each in log.running.broker.partitions}
        await log.append(ORDERS, some("it goes on"))


async def test_a_transaction_is_in_a_backup_whole_or_not_at_all(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"), TopicSettings(name="items"))
        writer = await log.writer("source")
        async with writer.transaction() as whole:
            await whole.append(ORDERS, some("a"))
            await whole.append(ITEMS, some("a"))
        async with writer.transaction() as open_one:
            await open_one.append(ORDERS, some("b"))
            await open_one.append(ITEMS, some("b"))
            await read_until_written(log)
            copied(log, store)

    restore(store, choose_backup(store, None), tmp_path / "again")

    async with opened(tmp_path / "again") as log:
        again = await log.writer("source")
        assert await read_all(log, ORDERS) == await read_all(log, ITEMS) == ["a"]
        async with again.transaction() as after:
            await after.append(ORDERS, some("c"))
        assert await read_all(log, ORDERS) == ["a", "c"]


async def read_until_written(log: EmbeddedLog) -> None:
    """Until all that was appended is on disk, so that it is in the backup."""
    for partition in log.running.broker.partitions:
        while partition.high_watermark < partition.log.end_offset:  # noqa: ASYNC110 - by state
            await asyncio.sleep(0)


@pytest.mark.slow
async def test_segments_that_are_removed_while_they_are_copied_are_copied(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"))
        for number in range(60):
            await log.append(ORDERS, some(f"{number} {'x' * 200}"))
        before = await read_all(log, ORDERS)
        held = held_by(log)
        partition = log.running.broker.partition("orders", 0)
        assert partition is not None and len(partition.log.segments) > 2
        partition.log.delete_records_before(50)
        removal = partition.log.apply_retention(START_MS, below=partition.high_watermark)
        assert removal is not None
        removal.run()
        back_up(tmp_path / "data", held, store, now_ms=START_MS)
        release(FILES, tmp_path / "data")

    restore(store, choose_backup(store, None), tmp_path / "again")

    assert not (tmp_path / "data" / HOLD).exists()
    async with opened(tmp_path / "again") as log:
        assert await read_all(log, ORDERS) == before


@pytest.mark.slow
async def test_a_second_backup_sends_only_what_is_new(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"))
        for number in range(200):
            await log.append(ORDERS, some(f"{number} {'x' * 200}"))
        first = copied(log, store)
        same = copied(log, store, now_ms=START_MS + 1)
        await log.append(ORDERS, some("one more"))
        third = copied(log, store, now_ms=START_MS + 2)

    assert first.sent > 40_000 and same.sent == 0
    assert 0 < third.sent < 5_000
    assert len(backup_names(store)) == 3


async def test_older_backups_are_removed_with_what_only_they_need(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"))
        for number in range(3):
            await log.append(ORDERS, some(f"{number} {'x' * 300}"))
            last = copied(log, store, now_ms=START_MS + number, keep=1)
        records = await read_all(log, ORDERS)

    restore(store, last.name, tmp_path / "again")

    assert backup_names(store) == [last.name] and last.removed == 1
    chunks = [each.name for each in store.objects("chunks/")]
    assert len(chunks) <= last.files
    async with opened(tmp_path / "again") as log:
        assert await read_all(log, ORDERS) == records


@pytest.mark.parametrize("damage", ["flipped", "missing", "list"])
async def test_a_damaged_backup_is_never_restored(tmp_path: Path, damage: str) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"))
        await log.append(ORDERS, some("a" * 500))
        name = copied(log, store).name
    chunks = [each.name for each in store.objects("chunks/")]
    victim = tmp_path / "copies" / (f"backups/{name}.json" if damage == "list" else chunks[0])
    if damage == "missing":
        victim.unlink()
    else:
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)

    with pytest.raises(CorruptLog, match=r"damaged|missing"):
        restore(store, name, tmp_path / "again")

    assert not (tmp_path / "again").exists()


async def test_places_and_directories_of_others_are_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        name = copied(log, store).name
    async with opened(tmp_path / "other") as log:
        with pytest.raises(ConfigError, match="backups of another log"):
            copied(log, store)

    with pytest.raises(ConfigError, match="not empty"):
        restore(store, name, tmp_path / "data")
    with pytest.raises(ConfigError, match="no backup of this name"):
        choose_backup(store, "yesterday")
    with pytest.raises(ConfigError, match="the place has no backup"):
        choose_backup(DirectoryStore(tmp_path / "empty", SINK_ERRORS), None)


@pytest.mark.parametrize("path", ["../stolen", "log/../../stolen", "{directory}/stolen"])
def test_a_file_outside_of_the_data_directory_is_refused(tmp_path: Path, path: str) -> None:
    store, path = store_in(tmp_path), path.format(directory=tmp_path)
    made = BackupManifest(0, "another", {path: StoredFile(0, ())})
    store.create("backups/foreign.json", made.encode())

    with pytest.raises(CorruptLog, match="outside of its directory"):
        restore(store, "foreign", tmp_path / "again")

    assert not (tmp_path / "stolen").exists() and not (tmp_path / "again").exists()


async def test_a_log_is_restored_into_a_directory_that_is_named_by_its_parent(
    tmp_path: Path,
) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        name = copied(log, store).name

    restore(store, name, tmp_path / "data/../again")

    assert (tmp_path / "again/meta.properties").exists()


def test_a_mount_point_is_refused_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_in(tmp_path)
    store.create("backups/one.json", BackupManifest(0, "one").encode())
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")

    with pytest.raises(ConfigError, match="mount point") as refused:
        restore(store, "one", tmp_path / "volume")

    assert str(tmp_path / "volume/log") in refused.value.hint


def test_a_log_is_restored_into_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_in(tmp_path)
    made = BackupManifest(0, "one", {"meta.properties": StoredFile(0, ())})
    store.create("backups/one.json", made.encode())
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    restore(store, "one", Path())

    assert (tmp_path / "here/meta.properties").exists()


async def test_a_backup_with_a_clock_that_went_back_is_refused(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        copied(log, store, now_ms=START_MS + 1_000)
        with pytest.raises(ConfigError, match="later than this clock"):
            copied(log, store, now_ms=START_MS, keep=1)

    assert len(backup_names(store)) == 1


async def test_an_interrupted_restore_is_repeated_from_its_beginning(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    async with opened(tmp_path / "data") as log:
        name = copied(log, store).name
    (tmp_path / "again.restoring/log").mkdir(parents=True)
    (tmp_path / "again.restoring/log/stale").write_text("left by a former one")

    restore(store, name, tmp_path / "again")

    assert not (tmp_path / "again/log/stale").exists()
    assert not (tmp_path / "again.restoring").exists()
    assert chunk_name("abc").startswith("chunks/ab/")


def test_held_files_pass_between_processes_as_they_are() -> None:
    held = [HeldFile("meta.properties", 0, b"\x00a=b\n"), HeldFile("log/a-0/0.log", 7)]

    assert decode_held(json.loads(encode_held(held))) == held


async def test_a_bucket_holds_backups_as_a_directory_does(tmp_path: Path, s3: S3Settings) -> None:
    client_of(s3).create_bucket(Bucket="logs")
    store = store_of("s3://logs/shop", s3, directory=tmp_path, errors=SINK_ERRORS)
    async with opened(tmp_path / "data") as log:
        await log.ensure_topic(TopicSettings(name="orders"))
        await log.append(ORDERS, some("a" * 500))
        records = await read_all(log, ORDERS)
        held = held_by(log)
        first = back_up(tmp_path / "data", held, store, now_ms=START_MS)
        second = back_up(tmp_path / "data", held, store, now_ms=START_MS + 1, keep=1)

    restore(store, choose_backup(store, None), tmp_path / "again")

    assert first.sent > 500 and second.sent == 0 and second.removed == 1
    async with opened(tmp_path / "again") as log:
        assert await read_all(log, ORDERS) == records
