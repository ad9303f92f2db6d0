"""Events of MySQL's binary log, with the framing right and everything inside of it as it comes."""

from collections.abc import Iterator
from pathlib import Path

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.event import CRC_BYTES, HEADER_BYTES
from headwater.connectors.mysql.binlog.json_document import json_text
from headwater.connectors.mysql.binlog.rows import RowsEvent, read_rows
from headwater.connectors.mysql.kernels.kernels import PlainMysqlKernels
from headwater.core_log.foundation.errors import DecodeError

GOLDEN = Path(__file__).parents[1] / "golden" / "mysql"
MARIADB, JSON = 1, 2
SEED_EVENTS = 12
FRAME_BYTES = 3
FORMAT_DESCRIPTION = 15


def seeds() -> list[bytes]:
    found = [bytes([JSON, 0, 1, 0, 12, 0, 11, 0, 1, 0, 5, 7, 0, 97])]
    for file in sorted(GOLDEN.glob("*.binlog")):
        head = bytes([MARIADB if "mariadb" in file.name else 0])
        events = [event for event in events_in(file) if event[4] != FORMAT_DESCRIPTION]
        found += [
            head + b"".join(map(frame_of, events[first : first + SEED_EVENTS]))
            for first in range(0, len(events), SEED_EVENTS)
        ]
    return found


def events_in(file: Path) -> Iterator[bytes]:
    data, pos = file.read_bytes(), 4
    while pos < len(data):
        size = int.from_bytes(data[pos + 9 : pos + 13], "little")
        yield data[pos : pos + size]
        pos += size


def frame_of(event: bytes) -> bytes:
    body = event[HEADER_BYTES:-CRC_BYTES]
    return len(body).to_bytes(2, "little") + event[4:5] + body


class Target:
    def __call__(self, data: bytes) -> None:
        head, pos = data[:1], 1
        if head == bytes([JSON]):
            read_json(data[1:])
            return
        decoder = BinlogDecoder(is_mariadb=head == bytes([MARIADB]))
        while pos + FRAME_BYTES <= len(data):
            length, kind = int.from_bytes(data[pos : pos + 2], "little"), data[pos + 2]
            body = data[pos + FRAME_BYTES : pos + FRAME_BYTES + length]
            pos += FRAME_BYTES + length
            try:
                for each in decoder.decode(event_of(kind, body)):
                    assert each.header.kind >= 0
                    if isinstance(each.event, RowsEvent):
                        read_all(each.event)
            except DecodeError:
                continue


def read_all(event: RowsEvent) -> None:
    read_rows(event.layout, [event.rows], PlainMysqlKernels(), range(len(event.table.columns)))


def read_json(document: bytes) -> None:
    try:
        json_text(document)
    except DecodeError:
        return


def event_of(kind: int, body: bytes) -> bytes:
    size = HEADER_BYTES + len(body)
    return bytes(4) + bytes([kind]) + bytes(4) + size.to_bytes(4, "little") + bytes(6) + body
