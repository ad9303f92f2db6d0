"""Files that grow, are renamed, cut or rewritten are read exactly once, whatever crashes."""

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from headwater.connectors.files.file_progress import FileState
from headwater.connectors.files.settings import FilesSettings
from headwater.connectors.files.storage import FileStorage
from headwater.core_log.foundation.errors import SourceRejected
from headwater.core_log.model.changes import Operation
from tests.connectors.files.stepwise_reader import LATER_MS, Reader

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "append",
                "append",
                "append a part",
                "rotate",
                "cut",
                "copy",
                "read",
                "read",
                "restart",
            ]
        ),
        st.integers(0, 40),
    ),
    max_size=25,
)
START_NS = 1_000_000_000_000


class LoggingProgram:
    """Writes numbered lines into `app.log`; every write is a little later than the one before."""

    def __init__(self, directory: Path, reader: Reader) -> None:
        self.path, self._reader = directory / "app.log", reader
        self.written: list[str] = []
        self._part = ""
        self._time_ns = START_NS
        self._write("")

    def append(self, count: int) -> None:
        """Whole lines; the first one ends what had been begun."""
        for place in range(count):
            line = f"{self._part}line {len(self.written)} {'x' * (place % 7)}"
            self._write(f"{line.removeprefix(self._part)}\n")
            self.written.append(line)
            self._part = ""

    def append_part(self) -> None:
        self._part += "part "
        self._write("part ")

    def rotate(self) -> None:
        if self._part:
            self.append(1)
        for number in range(8, 0, -1):
            older = self.path.with_name(f"app.log.{number}")
            if older.exists():
                older.rename(self.path.with_name(f"app.log.{number + 1}"))
        self.path.rename(self.path.with_name("app.log.1"))
        self._write("")

    def cut(self) -> None:
        """As `copytruncate` does it; what was not read by then is not the source's."""
        if self._part:
            self.append(1)
        self._reader.read_all()
        os.truncate(self.path, 0)
        self._write("")
        self._reader.read_all()

    def copy(self) -> None:
        """The same content under a new inode, as a synchronising tool leaves it. Renamed before
        anybody looked, nothing would tell it from a new file. A begun line is ended first: behind
        two copies with one, a restart takes a rotation for a rewritten file, and stops."""
        if self._part:
            self.append(1)
        fresh = self.path.with_name(".fresh")
        shutil.copyfile(self.path, fresh)
        fresh.rename(self.path)
        self._write("")
        self._reader.read_all()

    def _write(self, text: str) -> None:
        with self.path.open("ab") as file:
            file.write(text.encode())
        self._time_ns += 1_000_000
        os.utime(self.path, ns=(self._time_ns, self._time_ns))
        self._reader.now_ms = self._time_ns // 1_000_000


@pytest.mark.property
@given(STEPS)
def test_every_line_comes_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as path:
        directory = Path(path)
        reader = Reader(directory, {"batch": "1KiB", "order": "modified", "table": "app"})
        program = LoggingProgram(directory, reader)
        for step, number in steps:
            match step:
                case "append":
                    program.append(number)
                case "append a part":
                    program.append_part()
                case "rotate":
                    program.rotate()
                case "cut":
                    program.cut()
                case "copy":
                    program.copy()
                case "read":
                    reader.read(batches_max=number % 4)
                case "restart":
                    reader.look = None
        program.append(1)
        reader.read_all()

        assert reader.lines() == program.written


def log_reader(directory: Path, **chosen: object) -> Reader:
    return Reader(directory, {"table": "app", **chosen})


def test_a_line_without_its_end_waits_until_the_file_has_settled(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntw")
    reader = log_reader(tmp_path)

    reader.read()
    early = reader.lines()
    reader.now_ms = file.stat().st_mtime_ns // 1_000_000 + LATER_MS
    reader.read()

    assert (early, reader.lines()) == (["one"], ["one", "tw"])


def test_a_line_that_grows_after_it_was_taken_as_whole_stops_the_source(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntw")
    reader = log_reader(tmp_path)
    reader.read(is_last=True)
    with file.open("ab") as grown:
        grown.write(b"o\n")

    with pytest.raises(SourceRejected, match="rewritten"):
        reader.read()


def test_a_line_end_that_comes_late_ends_the_line(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntwo")
    reader = log_reader(tmp_path)
    reader.read(is_last=True)
    with file.open("ab") as grown:
        grown.write(b"\nthree\n")

    reader.read_all(is_last=True)

    assert reader.lines() == ["one", "two", "three"]
    assert reader.places() == ["a.log#0", "a.log#1", "a.log#2"]


def test_a_rewritten_file_without_a_key_stops_the_source(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntwo\n")
    reader = log_reader(tmp_path)
    reader.read()
    file.write_bytes(b"one\nsix\n")

    with pytest.raises(SourceRejected, match="rewritten") as caught:
        reader.read()

    assert "on_rewrite: append" in caught.value.hint
    assert "six" not in str(caught.value)


def test_a_rewritten_file_is_appended_whole_where_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntwo\n")
    reader = log_reader(tmp_path, on_rewrite="append")
    reader.read()
    file.write_bytes(b"one\nsix\n")

    reader.read_all()

    assert reader.lines() == ["one", "two", "one", "six"]
    assert set(reader.operations()) == {Operation.INSERT}


def test_a_rewritten_file_with_a_key_is_read_again_as_rows_that_replace(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"id,name\n1,a\n2,b\n")
    reader = log_reader(tmp_path, key="id")
    reader.read()
    file.write_bytes(b"id,name\n1,a\n2,B\n3,c\n")
    reader.read_all()
    with file.open("ab") as grown:
        grown.write(b"4,d\n")

    reader.read_all()

    assert [(row["id"], row["name"]) for row in reader.rows()][2:] == [
        (1, "a"), (2, "B"), (3, "c"), (4, "d")
    ]  # fmt: skip
    assert [each.name for each in reader.operations()] == ["UPDATE"] * 2 + ["READ"] * 3 + ["UPDATE"]


def test_a_change_in_the_middle_of_a_file_of_the_same_size_is_seen(tmp_path: Path) -> None:
    lines = [f"line {number:06d}\n" for number in range(1_000)]
    file = tmp_path / "a.log"
    file.write_text("".join(lines))
    reader = log_reader(tmp_path)
    reader.read_all()
    lines[500] = "line xxxxxx\n"
    fresh = tmp_path / ".fresh"
    fresh.write_text("".join(lines))
    fresh.rename(file)

    with pytest.raises(SourceRejected, match="rewritten"):
        reader.read()


def test_a_touched_file_is_not_read_again(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\n")
    reader = log_reader(tmp_path)
    reader.read()
    os.utime(file, ns=(START_NS, START_NS))

    reader.read_all()
    reader.look = None
    reader.read_all()

    assert reader.lines() == ["one"]


def test_a_file_that_is_rotated_out_of_the_glob_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"one\n")
    reader = Reader(tmp_path / "app.log", {})
    reader.read()
    with file.open("ab") as grown:
        grown.write(b"two\n")
    file.rename(tmp_path / "app.log-20260131")
    file.write_bytes(b"three\n")

    reader.read_all()

    assert reader.lines() == ["one", "two", "three"]
    assert reader.places() == ["app.log#0", "app.log-20260131#1", "app.log#0"]


def test_a_deleted_file_leaves_its_rows_and_a_new_one_of_its_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    reader = log_reader(tmp_path, on_rewrite="append")
    reader.read()
    (tmp_path / "a.log").unlink()
    reader.read()
    (tmp_path / "b.log").write_bytes(b"two\n")
    reader.read()
    (tmp_path / "a.log").write_bytes(b"three\n")

    reader.read_all()

    assert reader.lines() == ["one", "two", "three"]


def test_a_number_of_the_disk_that_is_used_again_is_no_rename(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\ntwo\n")
    reader = log_reader(tmp_path)
    reader.read()
    (tmp_path / "a.log").rename(tmp_path / "b.log")
    (tmp_path / "b.log").write_bytes(b"nothing of what had been there\n")

    reader.read_all()

    assert reader.lines() == ["one", "two", "nothing of what had been there"]


def test_a_number_of_the_disk_that_many_files_had_belongs_to_the_one_that_is_renamed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "app.log"
    reader = log_reader(tmp_path)
    file.write_bytes(b"gone\n")
    reader.read()
    gone = FileState.from_text(reader.positions["file/app.log"])
    file.rename(tmp_path / ".kept")
    file.write_bytes(b"one\ntwo\n")
    reader.positions.clear()
    reader.look = None
    reader.read()
    there = FileState.from_text(reader.positions["file/app.log"])
    # An older day's log was deleted, and the next `app.log` got its number.
    older = replace(gone, identity=there.identity, modified_us=there.modified_us - 1)
    reader.positions["file/app-20260130.log"] = older.to_text()
    reader.look = None
    file.rename(tmp_path / "app-20260131.log")
    file.write_bytes(b"three\nfour\nfive\n")

    reader.read_all()

    assert reader.lines() == ["gone", "one", "two", "three", "four", "five"]


def test_a_file_that_is_renamed_while_it_is_listed_is_looked_for_again(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"one\n")
    reader = log_reader(tmp_path)
    reader.read()
    file.rename(tmp_path / "app.log.1")
    file.write_bytes(b"two\n")
    place = FileStorage(FilesSettings(path=str(tmp_path)), tmp_path)
    late = [entry for entry in place.entries(()) if entry.name == "app.log"]
    look = reader.restart()
    with patch.object(look._storage, "entries", side_effect=[late, place.entries(())]):
        reader.read()

    reader.read_all()

    assert reader.lines() == ["one", "two"]


def test_a_parquet_file_that_got_the_number_of_another_is_read_from_its_start(
    tmp_path: Path,
) -> None:
    reader = log_reader(tmp_path)
    parquet.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    reader.read()
    (tmp_path / "a.parquet").rename(tmp_path / "b.parquet")
    parquet.write_table(pa.table({"id": list(range(1_000))}), tmp_path / "b.parquet")

    reader.read_all()

    assert len(reader.rows()) == 1_002


def test_a_file_that_is_written_to_after_it_was_listed_has_not_settled(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\n")
    os.utime(file, ns=(START_NS, START_NS))
    reader = log_reader(tmp_path, order="modified")
    reader.now_ms = file.stat().st_mtime_ns // 1_000_000 + LATER_MS
    (tmp_path / "b.log").write_bytes(b"zero\n" * 1_000)
    os.utime(tmp_path / "b.log", ns=(START_NS - 1, START_NS - 1))
    look = reader.restart()
    batches = look.batches(now_ms=reader.now_ms, is_last=False)
    with patch.object(look, "_expect", side_effect=lambda _: append_to(file, b"tw")):
        taken = list(batches)
    append_to(file, b"o\n")

    reader.batches += taken
    reader.read_all()

    assert [line for line in reader.lines() if line != "zero"] == ["one", "two"]


def append_to(file: Path, content: bytes) -> dict[str, int | None]:
    with file.open("ab") as grown:
        grown.write(content)
    return {}


def test_a_renamed_file_that_was_read_in_part_comes_first_after_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    file.write_bytes(b"begun\n")
    reader = log_reader(tmp_path, batch="1KiB")
    reader.read()
    with file.open("ab") as grown:
        grown.write(b"more\n" * 1_000)
    file.rename(tmp_path / "app.log.1")
    file.write_bytes(b"last\n")
    reader.read(batches_max=3)

    reader.read_all()

    assert reader.lines() == ["begun", *["more"] * 1_000, "last"]


def test_a_header_without_its_end_may_still_grow(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"id,na")
    reader = log_reader(tmp_path)
    reader.read(is_last=True)
    append_to(file, b"me\n1,a\n")

    reader.read_all(is_last=True)

    assert reader.rows() == [{"id": 1, "name": "a"}]
    assert not reader.rejects()


def test_a_file_of_csv_that_was_cut_begins_again_however_large_it_is_by_then(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"id\n1\n")
    reader = log_reader(tmp_path)
    reader.read()
    os.truncate(file, 0)
    reader.read()
    append_to(file, b"id\n2\n3\n4\n")

    reader.read_all()

    assert [row["id"] for row in reader.rows()] == [1, 2, 3, 4]


def test_a_compressed_file_that_grows_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "a.log.gz"
    file.write_bytes(gzip.compress(b"one\ntwo\n"))
    reader = log_reader(tmp_path)
    reader.read()
    with file.open("ab") as grown:
        grown.write(gzip.compress(b"three\n")[:-6])
    reader.read()
    early = reader.lines()
    file.write_bytes(gzip.compress(b"one\ntwo\n") + gzip.compress(b"three\n"))
    reader.look = None

    reader.read_all()

    assert early in (["one", "two"], ["one", "two", "three"])
    assert reader.lines() == ["one", "two", "three"]


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("cut", [3, 60, -1])
def test_an_archive_that_was_cut_is_said_and_read_on_when_the_rest_comes(
    tmp_path: Path, ending: str, cut: int
) -> None:
    lines = [f"line {number} of many" for number in range(20)]
    whole = PACKERS[ending]("\n".join(lines).encode())
    file = tmp_path / f"a.log.{ending}"
    file.write_bytes(whole[:cut])
    reader = log_reader(tmp_path)
    reader.now_ms = file.stat().st_mtime_ns // 1_000_000

    reader.read_all()
    early = [each.problem for each in reader.rejects()]
    reader.now_ms += LATER_MS
    reader.read_all()
    so_far = reader.lines()
    reader.look = None
    reader.read_all()
    told = [(each.at, each.problem) for each in reader.rejects()]
    file.write_bytes(whole[: cut + 1] if cut > 0 else whole)
    reader.read_all(is_last=True)
    told_again = reader.rejects()[1:]
    file.write_bytes(whole)
    reader.read_all(is_last=True)

    assert not early + told_again
    name = "gzip" if ending == "gz" else "zstd"
    assert told == [
        (f"a.log.{ending}:{len(so_far) + 1}", f"the file ends within its {name} stream")
    ]
    assert so_far == lines[: len(so_far)] and len(so_far) < len(lines)
    assert reader.lines() == lines
    assert len(reader.rejects()) == 1


def test_a_header_in_an_archive_that_was_cut_is_waited_for(tmp_path: Path) -> None:
    file, whole = tmp_path / "a.csv.gz", gzip.compress(b"id,name\n1,a\n")
    file.write_bytes(whole[:14])
    reader = log_reader(tmp_path)
    reader.read_all(is_last=True)
    file.write_bytes(whole)

    reader.read_all(is_last=True)

    assert [each.at for each in reader.rejects()] == ["a.csv.gz:1"]
    assert reader.rows() == [{"id": 1, "name": "a"}]


def test_a_damaged_archive_is_set_aside_and_the_other_files_go_on(tmp_path: Path) -> None:
    damaged = bytearray(gzip.compress(b"".join(b"line %d\n" % n for n in range(20_000))))
    damaged[len(damaged) // 2] ^= 0xFF
    (tmp_path / "a.log.gz").write_bytes(damaged)
    (tmp_path / "b.log").write_bytes(b"good\n")
    reader = log_reader(tmp_path)

    reader.read_all(is_last=True)

    assert "good" in reader.lines()
    assert [reject.problem for reject in reader.rejects()] == ["the gzip stream is damaged"]


def test_a_damaged_archive_that_got_the_number_of_another_is_set_aside(tmp_path: Path) -> None:
    file = tmp_path / "a.log.gz"
    file.write_bytes(gzip.compress(b"one\n"))
    reader = log_reader(tmp_path)
    reader.read_all()
    file.rename(tmp_path / "b.log.gz")
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"two\n")[:10] + b"\xff" * 100)

    reader.read_all(is_last=True)

    assert [reject.problem for reject in reader.rejects()] == ["the gzip stream is damaged"]


def test_a_look_at_what_has_not_changed_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"one\n")
    reader = log_reader(tmp_path)
    reader.read()
    seen = len(reader.batches)

    reader.read()
    reader.look = None
    reader.read()

    assert len(reader.batches) == seen
