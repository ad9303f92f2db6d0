"""Every store keeps the same promises: one suite, run over a directory and a bucket."""

import asyncio
import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest

from headwater.core_log.foundation.errors import DiskFull, SinkRejected, SourceRejected
from headwater.core_log.objects.directory import DirectoryStore
from headwater.core_log.objects.settings import S3Settings
from headwater.core_log.objects.store import (
    SINK_ERRORS,
    SOURCE_ERRORS,
    ObjectGone,
    ObjectStore,
    StoredObject,
    names_below,
    store_of,
)
from headwater.core_log.storage.files import OsFile, OsFiles
from tests.moto_server import client_of

WRITERS = 8

_numbers = count(1)


@pytest.fixture(params=["directory", "bucket", "prefix"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ObjectStore]:
    """Opens the same place again with every call."""
    if request.param == "directory":
        return lambda: store_of("out", S3Settings(), directory=tmp_path, errors=SINK_ERRORS)
    s3: S3Settings = request.getfixturevalue("s3").model_copy(update={"page_keys": 3})
    bucket = f"store-{next(_numbers)}"
    client_of(s3).create_bucket(Bucket=bucket)
    path = f"s3://{bucket}" + ("/below/it/" if request.param == "prefix" else "")
    return lambda: store_of(path, s3, directory=tmp_path, errors=SINK_ERRORS)


@pytest.fixture
def store(open_store: Callable[[], ObjectStore]) -> ObjectStore:
    return open_store()


def only(store: ObjectStore, name: str) -> StoredObject:
    (found,) = store.objects(name)
    return found


@pytest.mark.slow
def test_an_object_is_read_as_it_was_put(
    store: ObjectStore, open_store: Callable[[], ObjectStore]
) -> None:
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"two")

    assert open_store().read("a/b.json") == b"two"
    assert store.read("a/c.json") is None


def test_one_of_many_writers_creates_a_name(open_store: Callable[[], ObjectStore]) -> None:
    async def create_at_once() -> list[bool]:
        writers = [
            asyncio.to_thread(open_store().create, "log/1.json", b"%d" % number)
            for number in range(WRITERS)
        ]
        return await asyncio.gather(*writers)

    created = asyncio.run(create_at_once())

    assert sum(created) == 1
    store = open_store()
    assert store.read("log/1.json") == b"%d" % created.index(True)
    assert not store.create("log/1.json", b"later")
    assert names_below(store) == ["log/1.json"]


@pytest.mark.slow
def test_a_local_file_is_uploaded_as_a_whole(store: ObjectStore, tmp_path: Path) -> None:
    store.put("other", b"x")
    content = os.urandom(6 << 20)
    (tmp_path / "staged").write_bytes(content)

    store.upload("table/part-1", tmp_path / "staged")

    assert store.read("table/part-1") == content
    assert only(store, "table/").size == len(content)


def test_objects_are_listed_by_the_beginning_of_their_names(store: ObjectStore) -> None:
    names = ["a/1", "a/2", "a/deep/3", "ab/4", "b", "c/5", "c/6"]
    for name in reversed(names):
        store.put(name, b"x")

    assert [each.name for each in store.objects("")] == names
    assert [each.name for each in store.objects("a")] == names[:4]
    assert [each.name for each in store.objects("a/")] == names[:3]
    assert names_below(store, "a") == names[:3]
    assert store.objects("nothing/") == []


def test_objects_go_with_those_below_them(store: ObjectStore) -> None:
    names = ["a/1", "a/b/2", "a/b/c/3"]
    for name in names:
        store.put(name, b"x")

    store.remove(names)

    assert not [*store.objects("")]


@pytest.mark.slow
def test_removed_objects_are_gone_and_missing_ones_are_no_error(store: ObjectStore) -> None:
    for number in range(7):
        store.put(f"a/{number}", b"x")

    store.remove([f"a/{number}" for number in range(3, 9)])
    store.remove([])

    assert names_below(store) == ["a/0", "a/1", "a/2"]


def test_an_open_object_is_read_anywhere_up_to_its_end(store: ObjectStore) -> None:
    content = bytes(range(256)) * 40
    store.put("a", content)
    reader = store.open(only(store, "a"))

    assert reader.read(0, 100) == content[:100]
    assert reader.read(100, 100) == content[100:200]
    assert reader.read_range(5_000, 50) == content[5_000:5_050]
    assert reader.read(50, 1) == content[50:51]
    assert reader.read(len(content) - 3, 10) == content[-3:]
    assert reader.read_range(len(content) - 3, 10) == content[-3:]
    assert reader.read(len(content), 10) == b"" == reader.read_range(len(content) + 5, 10)
    assert reader.object.size == len(content)
    reader.close()


def test_another_object_under_the_name_is_not_opened(store: ObjectStore) -> None:
    store.put("a", b"first")
    listed = only(store, "a")
    store.put("a", b"second")

    with pytest.raises(ObjectGone):
        store.open(listed).read(0, 10)

    store.remove(["a"])
    with pytest.raises(ObjectGone):
        store.open(listed).read(0, 10)


def test_a_usable_store_passes_the_check(store: ObjectStore) -> None:
    store.check(writes=True)
    store.put("a/b", b"x")
    store.check("a", writes=False)


def test_other_programs_find_an_object_by_its_address(store: ObjectStore, s3: S3Settings) -> None:
    store.put("a/b", b"x")
    address = store.address("a/b")

    if address.startswith("s3://"):
        bucket, _, key = address.removeprefix("s3://").partition("/")
        assert client_of(s3).get_object(Bucket=bucket, Key=key)["Body"].read() == b"x"
    else:
        assert Path(address).read_bytes() == b"x"


def test_a_missing_bucket_and_a_path_without_one_are_refused(
    s3: S3Settings, tmp_path: Path
) -> None:
    missing = store_of("s3://nowhere", s3, directory=tmp_path, errors=SINK_ERRORS)

    with pytest.raises(SinkRejected, match="bucket does not exist"):
        missing.check(writes=True)
    with pytest.raises(SourceRejected, match="has no bucket"):
        store_of("s3://", s3, directory=tmp_path, errors=SOURCE_ERRORS)


def test_a_missing_directory_can_be_written_and_not_read(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "new", SINK_ERRORS)

    store.check("deep/er", writes=True)
    with pytest.raises(SinkRejected, match="does not exist") as caught:
        store.check(writes=False)

    assert caught.value.hint == f"mkdir -p {tmp_path / 'new'}"


def test_a_place_that_nobody_can_write_waits_for_a_person(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = DirectoryStore(tmp_path, SINK_ERRORS)

    with pytest.raises(SinkRejected, match="the disk refuses access") as caught:
        store.put("file/below", b"x")

    assert caught.value.facts["path"] == str(tmp_path / "file/below")


def test_a_directory_that_may_not_be_entered_is_left_out(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, SINK_ERRORS)
    for name in ("a/1", "a/skip/2", "b/skip/deep/3", "b/4"):
        store.put(name, b"x")

    found = store.objects("", may_enter=lambda name: not name.endswith("skip"))

    assert [each.name for each in found] == ["a/1", "b/4"]


def test_no_name_is_listed_before_it_is_whole(tmp_path: Path) -> None:
    """A writer that was killed leaves a hidden file, which no reader takes for an object."""
    store = DirectoryStore(tmp_path, SINK_ERRORS)
    with (
        patch("headwater.core_log.objects.directory.os.link", side_effect=KeyboardInterrupt),
        patch.object(OsFiles, "remove"),
        pytest.raises(KeyboardInterrupt),
    ):
        store.create("log/1.json", b"x")

    assert list((tmp_path / "log").iterdir()), "the file of the killed writer"
    assert names_below(store) == []
    assert store.read("log/1.json") is None


@pytest.mark.parametrize("name", ["put", "create"])
def test_another_writer_of_the_name_may_come_at_any_moment(tmp_path: Path, name: str) -> None:
    store, sync, others = DirectoryStore(tmp_path, SINK_ERRORS), OsFile.sync, [b"other"]

    def syncs(file: OsFile) -> None:
        sync(file)
        if others:
            getattr(store, name)("a/kept", others.pop())

    with patch.object(OsFile, "sync", syncs):
        getattr(store, name)("a/kept", b"one")

    assert store.read("a/kept") == (b"one" if name == "put" else b"other")
    assert [each.name for each in (tmp_path / "a").iterdir()] == ["kept"]


def test_every_new_directory_is_synced_into_its_parent(tmp_path: Path) -> None:
    synced: list[Path] = []
    store = DirectoryStore(tmp_path / "x", SINK_ERRORS)

    with patch.object(OsFiles, "sync_directory", lambda _, path: synced.append(path)):
        store.create("a/b/c", b"x")

    assert synced[:3] == [tmp_path, tmp_path / "x", tmp_path / "x/a"]
    assert synced[-1] == tmp_path / "x/a/b"


def test_a_full_disk_is_tried_again_later(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, SINK_ERRORS)

    with (
        patch.object(OsFiles, "replace", side_effect=OSError(errno.ENOSPC, "no space left")),
        pytest.raises(DiskFull, match="the disk is full"),
    ):
        store.put("file", b"x")
