"""Packets of a server, of any cut, become events or our own errors."""

import os
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from headwater.connectors.mysql.binlog import transport
from headwater.connectors.mysql.binlog.transport import BinlogTransport, stream_error
from headwater.connectors.mysql.server.connection import MysqlConnection
from headwater.core_log.foundation.errors import (
    DecodeError,
    PositionLost,
    SourceRejected,
    SourceUnavailable,
)

IDLE, _ = os.pipe()
"""Nothing ever comes out of it."""


@dataclass
class FakeSocket:
    """Gives what it has in pieces of any size, and then nothing."""

    content: bytes
    chance: Random = field(default_factory=lambda: Random(1))

    def fileno(self) -> int:
        return IDLE

    def recv_into(self, room: memoryview) -> int:
        size = min(len(room), len(self.content), self.chance.randrange(1, 50_000))
        room[:size], self.content = self.content[:size], self.content[size:]
        return size


@dataclass
class FakeDriver:
    _sock: Any


def transport_of(content: bytes) -> BinlogTransport:
    return BinlogTransport(MysqlConnection(FakeDriver(FakeSocket(content))))


def packet(payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + b"\0" + payload


def test_events_come_whole_however_the_packets_are_cut() -> None:
    events = [bytes([at % 256]) * (at * 97 % 5_000 + 1) for at in range(300)]
    stream = transport_of(b"".join(packet(b"\0" + event) for event in events))

    found: list[bytes] = []
    with pytest.raises(SourceUnavailable, match="closed"):
        while True:
            found += stream.wait_for_events(10_000)

    assert found == events


@pytest.mark.slow
def test_an_event_of_several_packets_is_joined() -> None:
    event = b"x" * (transport.PACKET_BYTES_MAX + 10)
    whole = b"\0" + event
    head, rest = whole[: transport.PACKET_BYTES_MAX], whole[transport.PACKET_BYTES_MAX :]
    stream = transport_of(packet(head) + packet(rest))

    assert stream.wait_for_events(1) == [event]


@pytest.mark.slow
def test_an_event_that_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "EVENT_BYTES_MAX", 20 << 20)
    endless = packet(b"\0" * transport.PACKET_BYTES_MAX) * 2

    with pytest.raises(DecodeError, match="larger"):
        transport_of(endless).wait_for_events(1)


@pytest.mark.parametrize(
    ("code", "said", "kind", "words"),
    [
        (1236, "Could not find first log file name in binary log index", PositionLost, "purged"),
        (1236, "the source purged required binary logs", PositionLost, "purged"),
        (1236, "Could not find GTID state requested by slave", PositionLost, "purged"),
        (1236, "start replication from position > file size", PositionLost, "ahead"),
        (1236, "Replica has more GTIDs than the source has", PositionLost, "ahead"),
        (1236, "A replica with the same server_uuid/server_id as this replica", SourceRejected,
         "same server id"),
        (4052, "A slave with the same server_id is already connected", SourceRejected,
         "same server id"),
        (1227, "Access denied", SourceRejected, "may not read"),
        (1236, "something else", SourceRejected, "cannot send"),
        (1053, "Server shutdown in progress", SourceUnavailable, "ended"),
    ],
)  # fmt: skip
def test_errors_of_a_stream_are_told_apart_by_their_words(
    code: int, said: str, kind: type[Exception], words: str
) -> None:
    payload = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + said.encode()

    with pytest.raises(kind, match=words):
        transport_of(packet(payload)).wait_for_events(1)
    assert isinstance(stream_error(code, said), kind)


def test_the_end_of_a_stream_is_no_end_of_the_history() -> None:
    with pytest.raises(SourceUnavailable, match="ended"):
        transport_of(packet(b"\xfe\0\0\2\0")).wait_for_events(1)
