"""A file that is made to hurt is refused before it has cost anything."""

import os
import tracemalloc
from pathlib import Path

import pytest

from headwater.config.document import FILE_BYTES_MAX, parse_document, read_document
from headwater.config.mistakes import MistakesFound

FILE = Path("pipeline.yaml")
MEMORY_BYTES_MAX = 50 << 20


def billion_laughs() -> bytes:
    lines = [b"a: &a [x, x, x, x, x, x, x, x, x]"]
    for letter in range(ord("b"), ord("z")):
        inner = b", ".join([b"*%c" % (letter - 1)] * 9)
        lines.append(b"%c: &%c [%s]" % (letter, letter, inner))
    return b"\n".join(lines)


HOSTILE = {
    "aliases of aliases": (billion_laughs(), "aliases counted in full"),
    "an alias of itself": (b"&a [*a]", "written before it"),
    "brackets": (b"[" * FILE_BYTES_MAX, "nested more than"),
    "braces": (b"{a: " * (FILE_BYTES_MAX // 4), "nested more than"),
    "indentation": (b"".join(b" " * at + b"a:\n" for at in range(1_400)), "nested more than"),
    "dashes in dashes": (b"- " * (FILE_BYTES_MAX // 2), "nested more than"),
    "keys in keys": (b"? " * (FILE_BYTES_MAX // 2), "nested more than"),
    "a hundred thousand values": (b"- 1\n" * 100_000, "more than 20,000 values"),
    "a hundred thousand keys": (
        b"".join(b"k%d: 1\n" % number for number in range(50_000)),
        "more than 20,000 values",
    ),
    "a command": (b"a: !!python/object/apply:os.system ['true']", "tags are not used"),
    "an object": (b"!!python/object:os.PathLike {}", "tags are not used"),
    "a tag of its own": (b"%TAG ! tag:x,2000:\n---\n!foo a", "tags are not used"),
    "a standard tag": (b"a: !!int '5'", "tags are not used"),
    "ten megabytes": (b"a" * (10 << 20), "larger than 1 MiB"),
    "commas": (b"{" + b"," * 1_000_000, "did not find expected"),
    "zeros": (b"\0" * 1_000_000, "control character"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_within_little_memory(name: str) -> None:
    content, words = HOSTILE[name]
    tracemalloc.start()

    with pytest.raises(MistakesFound, match=words):
        parse_document(content, FILE)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < MEMORY_BYTES_MAX


def test_a_file_of_terabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(MistakesFound, match=r"larger than 1 MiB, it has 1,099,511,627,776 bytes"):
        read_document(path)


def test_a_pipe_device_or_directory_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(MistakesFound):
            read_document(path)
