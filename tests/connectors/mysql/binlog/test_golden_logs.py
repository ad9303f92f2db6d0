"""Binary logs of real servers are read as they were recorded, and broken ones end in an error."""

from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.mysql.binlog.decoder import BinlogDecoder
from headwater.connectors.mysql.binlog.event import CRC_BYTES, HEADER_BYTES
from headwater.connectors.mysql.binlog.json_document import json_text
from headwater.connectors.mysql.binlog.rows import RowsEvent
from headwater.connectors.mysql.kernels.kernels import kernels_of
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.foundation.speed import Speed
from tests.connectors.mysql.binlog.golden_history import (
    GOLDEN,
    KINDS,
    columns_of,
    events_in,
    line_of,
    told_of,
)

LOGS = [GOLDEN / f"{kind}.binlog" for kind in KINDS]


@pytest.fixture(params=LOGS, ids=lambda path: path.stem)
def file(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.mark.parametrize("speed", ["python", "fast"])
def test_every_event_of_a_golden_log_is_read_as_it_was_recorded(file: Path, speed: Speed) -> None:
    kernels = kernels_of(speed)

    found = [line_of(decoded, kernels) for decoded in told_of(file)]

    assert found == file.with_suffix(".txt").read_text().splitlines()


def test_numbers_behind_a_year_are_those_of_the_statement(file: Path) -> None:
    """Versions of MySQL differ in whether a year has a sign among those of the numbers."""
    rows = [each.event for each in told_of(file) if isinstance(each.event, RowsEvent)]
    _, _, first = next(columns_of(each) for each in rows if each.table.name == "t")

    year, signed, unsigned = first[1][0], first[2][0], first[3][0]
    assert (year, signed, unsigned) == (2026, -1, 65535)


def test_the_golden_logs_have_every_kind_of_row_event() -> None:
    kinds = {event[4] for file in LOGS for event in events_in(file.read_bytes())}

    assert {19, 23, 24, 25, 30, 31, 32, 38, 39, 40, 42, 162, 166, 167, 168} <= kinds


@pytest.mark.parametrize("kind", ["mysql-9", "mysql-8.0"])
def test_parts_of_json_documents_are_applied_to_the_document_before(kind: str) -> None:
    rows = [each.event for each in told_of(GOLDEN / f"{kind}.binlog")]
    documents = [
        after[11][0]
        for each in rows
        if isinstance(each, RowsEvent) and 11 in (after := columns_of(each)[2])
    ]
    partial = [each for each in documents if isinstance(each, str)]

    assert partial == [
        '{"a": [9, 2], "b": {"c": "shorter"}}',
        '{"a": [9, 2], "b": {}}',
    ]


def test_a_flipped_bit_is_an_error(file: Path) -> None:
    """The checksum covers all of an event."""
    chance = Random(7)
    first, *events = events_in(file.read_bytes())
    for event in events:
        decoder = BinlogDecoder("mariadb" in file.name)
        list(decoder.decode(first))
        place = chance.randrange(HEADER_BYTES, len(event))
        broken = bytearray(event)
        broken[place] ^= 1 << chance.randrange(8)

        with pytest.raises(DecodeError, match="checksum"):
            list(decoder.decode(bytes(broken)))


@pytest.mark.property
@given(st.data())
def test_broken_events_end_in_our_own_error(data: st.DataObject) -> None:
    """With a right checksum, as a hostile server can send them."""
    file = data.draw(st.sampled_from(LOGS))
    events = list(events_in(file.read_bytes()))
    decoder = BinlogDecoder("mariadb" in file.name)
    at = data.draw(st.integers(1, len(events) - 1))
    for event in events[:at]:
        list(decoder.decode(event))
    body = bytearray(events[at][:-CRC_BYTES])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(HEADER_BYTES, len(body) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(HEADER_BYTES, len(body))) :]
        body[9:13] = (len(body) + CRC_BYTES).to_bytes(4, "little")
    broken = bytes(body) + crc32(body).to_bytes(4, "little")

    lines = []
    for speed in ("python", "fast"):
        try:
            lines.append([line_of(each, kernels_of(speed)) for each in decoder.decode(broken)])
        except DecodeError as error:
            lines.append([str(error)])

    assert lines[0] == lines[1]


@pytest.mark.property
@given(st.binary(max_size=200))
def test_noise_as_a_json_document_ends_in_our_own_error(noise: bytes) -> None:
    try:
        text = json_text(noise)
    except DecodeError:
        return

    assert len(text) < 1_000 + 200 * len(noise)


def test_a_document_that_contains_itself_is_refused() -> None:
    array = bytes([2, 1, 0, 7, 0, 2, 0, 0])

    with pytest.raises(DecodeError, match="nested"):
        json_text(array * 1_000)
    with pytest.raises(DecodeError, match="more values"):
        json_text(array)


@pytest.mark.parametrize("bits", [b"\xff" * 8, b"\x00" * 6 + b"\xf0\x7f"], ids=["nan", "infinity"])
def test_a_number_that_json_does_not_have_is_refused(bits: bytes) -> None:
    with pytest.raises(DecodeError, match="finite"):
        json_text(b"\x0b" + bits)


def test_an_unknown_event_stops_the_stream_unless_it_may_be_skipped() -> None:
    first = next(iter(events_in(LOGS[0].read_bytes())))
    decoder = BinlogDecoder(is_mariadb=False)
    list(decoder.decode(first))

    assert not list(decoder.decode(event_of(kind=99, flags=0x80)))
    with pytest.raises(DecodeError, match="not supported") as caught:
        list(decoder.decode(event_of(kind=99, flags=0)))
    assert caught.value.facts["type"] == 99


def test_a_payload_that_grows_without_end_is_refused() -> None:
    import zstandard

    bomb = zstandard.compress(bytes(1 << 20))
    first = next(iter(events_in(LOGS[0].read_bytes())))
    decoder = BinlogDecoder(is_mariadb=False)
    list(decoder.decode(first))

    with pytest.raises(DecodeError, match="no possible size"):
        list(decoder.decode(event_of(kind=40, flags=0, body=b"\x00" + bomb)))


def event_of(*, kind: int, flags: int, body: bytes = b"") -> bytes:
    size = HEADER_BYTES + len(body) + CRC_BYTES
    head = bytes(4) + bytes([kind]) + bytes(4) + size.to_bytes(4, "little") + bytes(4)
    event = head + flags.to_bytes(2, "little") + body
    return event + crc32(event).to_bytes(4, "little")
