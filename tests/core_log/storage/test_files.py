"""The operating system's files and the tests' own keep the same contract."""

import os
from pathlib import Path

import pytest

from headwater.core_log.storage.files import Files, OsFiles, write_all
from tests.fakes import FaultyFiles, MemoryFiles


@pytest.fixture(params=["os", "memory", "faulty"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param == "os":
        return OsFiles()
    return MemoryFiles() if request.param == "memory" else FaultyFiles(MemoryFiles())


@pytest.fixture
def directory(files: Files, tmp_path: Path) -> Path:
    files.make_directory(tmp_path / "a" / "b")
    return tmp_path / "a" / "b"


def test_written_bytes_are_read_and_end_where_the_file_ends(files: Files, directory: Path) -> None:
    file = files.open(directory / "x", create=True)
    write_all(file, 0, b"hello")
    write_all(file, 3, memoryview(b"p me"))

    assert file.size() == files.size(directory / "x") == 7
    assert files.read(directory / "x") == b"help me"
    assert file.read(5, 100) == b"me"
    assert file.read(7, 100) == b""
    file.truncate(4)
    assert files.read(directory / "x") == b"help"
    file.truncate(6)
    assert files.read(directory / "x") == b"help\0\0"
    file.begin_sync()
    file.sync()


def test_a_file_that_is_not_there_is_only_opened_to_create_it(
    files: Files, directory: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        files.open(directory / "x")
    with pytest.raises(FileNotFoundError):
        files.read(directory / "x")
    files.open(directory / "x", create=True)
    assert files.exists(directory / "x")


def test_an_open_file_outlives_its_name(files: Files, directory: Path) -> None:
    file = files.open(directory / "x", create=True)
    write_all(file, 0, b"content")
    files.rename(directory / "x", directory / "y")
    assert not files.exists(directory / "x")
    files.remove(directory / "y")

    assert file.read(0, 100) == b"content"
    assert files.names(directory) == []
    files.remove(directory / "y")


def test_replacing_puts_the_whole_content_in_place(files: Files, directory: Path) -> None:
    files.replace(directory / "x", b"first")
    old = files.open(directory / "x")
    files.replace(directory / "x", b"second", mode=0o600)

    assert files.read(directory / "x") == b"second"
    assert old.read(0, 100) == b"first"
    assert files.names(directory) == ["x"]
    files.sync_directory(directory)


def test_a_directory_is_renamed_with_what_is_in_it(files: Files, directory: Path) -> None:
    files.open(directory / "x", create=True)
    files.rename(directory, directory.with_name("c"))

    assert files.names(directory.parent) == ["c"]
    assert files.names(directory.with_name("c")) == ["x"]
    with pytest.raises(OSError, match="not empty"):
        files.remove_directory(directory.with_name("c"))
    files.remove(directory.with_name("c") / "x")
    files.remove_directory(directory.with_name("c"))
    assert files.names(directory.parent) == []


def test_a_lock_is_held_once_and_names_its_holder(files: Files, directory: Path) -> None:
    held = files.lock(directory / "lock")

    assert held is not None
    assert files.lock(directory / "lock") is None
    assert files.read(directory / "lock").decode() == f"{os.getpid()}\n"
    del held
    assert files.lock(directory / "lock") is not None


def test_a_secret_is_never_readable_by_others_even_over_a_laxer_file(tmp_path: Path) -> None:
    files = OsFiles()
    (tmp_path / "x.tmp").touch(mode=0o644)

    files.replace(tmp_path / "x", b"secret", mode=0o600)

    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o600


def test_an_os_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = OsFiles().open(tmp_path / "x", create=True)
    descriptor = file.fileno()
    del file

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
