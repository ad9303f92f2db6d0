"""`headwater log` reads a log without a broker, and ends with 4 where it is damaged."""

from pathlib import Path

import pytest

from headwater.core_log.records.record_codec import PlainRecord, encode_batch, encode_marker
from headwater.pipelines.terminal import exit_codes
from tests.pipelines.conftest import Headwater

TIME_MS = 1_700_000_000_000
FIRST_SEGMENT = f"{0:020d}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with two partitions: a transaction of two records, and one more batch."""
    for partition in (0, 1):
        directory = tmp_path / "log" / f"orders-{partition}"
        directory.mkdir(parents=True)
        (directory / FIRST_SEGMENT).write_bytes(transaction() + plain(3))
    return tmp_path


def transaction() -> bytes:
    records = [
        PlainRecord(b"k", b"v", timestamp_ms=TIME_MS, headers=[("from", b"here")]),
        PlainRecord(b"k", None, timestamp_ms=TIME_MS + 1),
    ]
    marker = encode_marker(
        commit=True,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=TIME_MS + 2,
        base_offset=2,
    )
    batch = encode_batch(
        records, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    return bytes(batch + marker)


def plain(offset: int) -> bytes:
    return bytes(
        encode_batch([PlainRecord(None, b"\xff\x1b", timestamp_ms=TIME_MS)], base_offset=offset)
    )


def damage(data: Path) -> Path:
    """Flips one byte in the first batch of the second partition."""
    path = data / "log" / "orders-1" / FIRST_SEGMENT
    content = bytearray(path.read_bytes())
    content[65] ^= 1
    path.write_bytes(content)
    return path


def test_a_data_directory_is_shown_partition_by_partition(headwater: Headwater, data: Path) -> None:
    rows = headwater("log", "inspect", data, "--json").envelope["data"]

    assert [(row["topic"], row["partition"]) for row in rows] == [("orders", 0), ("orders", 1)]
    assert {(row["start_offset"], row["end_offset"], row["records"]) for row in rows} == {(0, 4, 4)}
    assert rows[0]["newest"] == "2023-11-14T22:13:20.002Z"


def test_a_partition_is_shown_segment_by_segment(headwater: Headwater, data: Path) -> None:
    ran = headwater("log", "inspect", data / "log" / "orders-0")

    head, row = ran.data.splitlines()
    assert head.split()[:4] == ["BASE", "OFFSET", "END", "OFFSET"]
    assert row.split()[:4] == ["0", "4", "3", "4"]


def test_batches_are_listed_with_what_their_heads_say(headwater: Headwater, data: Path) -> None:
    lines = headwater("log", "inspect", data / "log" / "orders-0", "--batches").data.splitlines()

    assert len(lines) == 3
    assert "offsets=0..1" in lines[0] and "producer=7/0" in lines[0] and "transactional" in lines[0]
    assert "control" in lines[1]


def test_records_are_listed_as_people_read_them(headwater: Headwater, data: Path) -> None:
    lines = headwater("log", "inspect", data / "log" / "orders-0", "--records").data.splitlines()

    assert lines == [
        "0:0\t2023-11-14T22:13:20.000Z\tk\tv",
        "0:1\t2023-11-14T22:13:20.001Z\tk\t-",
        "0:2\t2023-11-14T22:13:20.002Z\t(commit)",
        "0:3\t2023-11-14T22:13:20.000Z\t-\t\\xff\\x1b",
    ]


def test_a_sound_log_verifies(headwater: Headwater, data: Path) -> None:
    ran = headwater("log", "verify", data)

    assert ran.code == exit_codes.OK
    assert ran.data == f"2 partitions, 2 segments, 6 batches, {size_of(data):,} bytes read: sound\n"


def size_of(data: Path) -> int:
    return sum(path.stat().st_size for path in data.rglob("*.log"))


def test_damage_is_reported_with_file_position_and_offsets(
    headwater: Headwater, data: Path
) -> None:
    path = damage(data)

    ran = headwater("log", "verify", data)

    assert ran.code == exit_codes.DIFFERENT
    assert f"{path}:0: damage: batch fails its checksum (offsets 0 to 1)" in ran.data
    assert "error: the log is damaged in 1 place" in ran.remarks


def test_damage_is_an_answer_and_an_error_in_one_envelope(headwater: Headwater, data: Path) -> None:
    path = damage(data)

    ran = headwater("log", "verify", "--json", data / "log" / "orders-1")

    assert ran.envelope["ok"] is False
    assert ran.envelope["error"]["kind"] == "DifferencesFound"
    assert ran.envelope["error"]["exit_code"] == ran.code == exit_codes.DIFFERENT
    assert ran.envelope["data"]["findings"] == [
        {
            "file": str(path),
            "problem": "batch fails its checksum",
            "position": 0,
            "first_offset": 0,
            "next_offset": 2,
            "is_damage": True,
        }
    ]


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_a_directory_without_a_log_is_said_to_be_none(
    headwater: Headwater, tmp_path: Path, verb: str
) -> None:
    empty, missing = headwater("log", verb, tmp_path), headwater("log", verb, tmp_path / "gone")

    assert empty.code == missing.code == exit_codes.INVALID
    assert "the directory contains no log" in empty.remarks
    assert "the directory does not exist" in missing.remarks
    assert "Traceback" not in empty.remarks + missing.remarks
