"""Lack of room is told apart from all other reasons, of the system and of databases."""

import errno
import os
import sqlite3
from pathlib import Path

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from headwater.core_log.foundation.database_errors import database_full, is_disk_full
from headwater.core_log.foundation.disk_space import (
    disk_full,
    has_no_room,
    lacks_room,
    said_no_room,
    write_refusal,
)


def system_error(code: int, path: str | None = None) -> OSError:
    return OSError(code, os.strerror(code), path)


def test_the_reason_beneath_a_wrapped_error_counts() -> None:
    wrapped = RuntimeError("a library has failed")
    wrapped.__cause__ = system_error(errno.EDQUOT)

    assert lacks_room(wrapped)
    assert not lacks_room(system_error(errno.EACCES))
    assert not lacks_room(ValueError("no space left on device"))


def test_the_error_has_the_disk_the_path_and_the_bytes(tmp_path: Path) -> None:
    named = disk_full(system_error(errno.ENOSPC, str(tmp_path / "a/b")), "/elsewhere", table="t")

    facts = named.facts
    assert facts["path"] == str(tmp_path / "a/b") and facts["table"] == "t"
    assert Path(str(facts["disk"])).is_mount() and isinstance(facts["free_bytes"], int)
    assert facts["reason"] == os.strerror(errno.ENOSPC).lower()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS])
def test_a_brokers_refusal_says_whether_room_is_lacking(code: int) -> None:
    refusal = write_refusal(system_error(code), Path("/log/t-0"), 4_096)

    assert has_no_room(refusal) == (code not in (errno.EIO, errno.EROFS))
    assert refusal.endswith("4,096 bytes free at /log/t-0")


def test_messages_of_java_and_rust_are_understood() -> None:
    assert said_no_room("java.io.IOException: No space left on device")
    assert said_no_room("Generic LocalFileSystem error: (os error 28)")
    assert not said_no_room("java.io.IOException: Permission denied")


def test_databases_say_that_their_own_disk_is_full(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.db") as database:
        database.execute("PRAGMA max_page_count = 1")
        with pytest.raises(sqlite3.OperationalError) as full:
            database.execute("CREATE TABLE t (a int)")
    database.close()

    assert is_disk_full(full.value)
    assert is_disk_full(psycopg.errors.DiskFull("could not extend file"))
    assert is_disk_full(sa.exc.OperationalError("", {}, pymysql.OperationalError(1021, "full")))
    assert not is_disk_full(psycopg.errors.OutOfMemory("out of memory"))
    assert not is_disk_full(pymysql.OperationalError(2006, "gone away"))
    assert not is_disk_full(sqlite3.OperationalError("no such table"))


def test_a_full_database_has_its_file_or_its_address() -> None:
    file, server = sa.make_url("sqlite:////tmp/t.db"), sa.make_url("mysql://u:secret@db:3307/x")

    assert database_full(file).facts.keys() == {"path", "disk", "free_bytes"}
    assert database_full(server, table="t").facts == {"table": "t", "host": "db", "port": 3307}
