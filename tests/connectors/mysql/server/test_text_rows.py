"""Rows of a SELECT from a server that says anything: rows, or our own errors."""

import os
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pymysql
import pytest

from headwater.connectors.mysql.kernels.kernels import PACKET_BYTES_MAX, kernels_of
from headwater.connectors.mysql.server import text_rows
from headwater.connectors.mysql.server.text_rows import blocks_of
from headwater.core_log.foundation.errors import DecodeError

KERNELS = [kernels_of("fast"), kernels_of("python")]
IDLE, _ = os.pipe()
"""Nothing ever comes out of it."""
END = b"\xfe\0\0\2\0"


@dataclass
class FakeReader:
    """Gives what it has in pieces of any size; the driver has read some of it before."""

    content: "memoryview[int]"
    chance: Random = field(default_factory=lambda: Random(1))

    @property
    def raw(self) -> "FakeReader":
        return self

    def read1(self, _: int) -> bytes:
        piece, self.content = self.content[:7], self.content[7:]
        return bytes(piece)

    def readinto(self, room: Any) -> int:
        size = min(len(room), self.chance.randrange(1, 1 << 20))
        piece, self.content = self.content[:size], self.content[size:]
        room[: len(piece)] = np.frombuffer(piece, np.uint8)
        return len(piece)


@dataclass
class FakeDriver:
    _rfile: FakeReader

    @property
    def _sock(self) -> Any:
        return self

    def fileno(self) -> int:
        return IDLE


def packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def rows_in(content: bytes, kernels: Any, *, columns: int) -> list[tuple[Any, ...]]:
    found = list[tuple[Any, ...]]()
    for block in blocks_of(FakeDriver(FakeReader(memoryview(content))), kernels):
        cells = [each.to_pylist() for each in block.columns(columns, kernels)]
        found += zip(*cells, strict=True)
    return found


@pytest.mark.parametrize("kernels", KERNELS, ids=["fast", "python"])
def test_rows_come_whole_however_they_are_cut(kernels: Any) -> None:
    rows = [(b"%d" % at, None if at % 3 else b"x" * (at % 250)) for at in range(5_000)]
    wire = b"".join(
        packet(b"".join(b"\xfb" if c is None else bytes([len(c)]) + c for c in row)) for row in rows
    )

    assert rows_in(wire + packet(END), kernels, columns=2) == rows


@pytest.mark.parametrize("kernels", KERNELS, ids=["fast", "python"])
@pytest.mark.parametrize(
    "row", [b"\xfe" + b"\xff" * 8, b"\xfc\xff", b"\x05ab", b"\xff" * 2, b"\1a\1b\1c", b""]
)
def test_a_row_of_another_length_is_an_error(row: bytes, kernels: Any) -> None:
    with pytest.raises((DecodeError, pymysql.MySQLError)):
        rows_in(packet(b"\1a\1b") + packet(row), kernels, columns=2)


@pytest.mark.slow
def test_a_row_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_rows, "ROW_BYTES_MAX", 3 * PACKET_BYTES_MAX)
    endless = packet(b"x" * PACKET_BYTES_MAX) * 5

    with pytest.raises(DecodeError, match="gibibyte"):
        rows_in(endless, KERNELS[1], columns=1)
