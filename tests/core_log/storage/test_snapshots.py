"""A producer snapshot is Kafka's file byte for byte, and a damaged one is passed over."""

from struct import pack

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.storage.producer_snapshot import decode_snapshot, encode_snapshot
from headwater.core_log.storage.producers import DuplicateBatch
from tests.builders import DATA, Sequenced, append, open_log, sync
from tests.fakes import MemoryFiles


def test_a_snapshot_has_kafkas_layout() -> None:
    _, log = open_log(MemoryFiles())
    append(log, "x", "y", "z", producer=Sequenced(0x1122334455, 3, 40), now_ms=1234)
    append(log, "t", producer=Sequenced(6, 1, 0, is_transactional=True), now_ms=1235)

    snapshot = encode_snapshot(log.producers)

    body = pack(">i", 2)
    body += pack(">qhiqiqiq", 0x1122334455, 3, 42, 2, 2, 1234, -1, -1)
    body += pack(">qhiqiqiq", 6, 1, 0, 3, 0, 1235, -1, 3)
    assert snapshot == pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_is_read_as_it_was_written() -> None:
    _, log = open_log(MemoryFiles())
    append(log, "x", "y", "z", producer=Sequenced(5, 3, 40))
    append(log, "t", producer=Sequenced(6, 1, 0, is_transactional=True))
    log.append_marker(6, 2, commit=True, coordinator_epoch=9, leader_epoch=0, now_ms=1)

    restored = decode_snapshot(encode_snapshot(log.producers))

    assert encode_snapshot(restored) == encode_snapshot(log.producers)
    by_id = dict(restored)
    assert (by_id[5].next_sequence, by_id[6].epoch, by_id[6].coordinator_epoch) == (43, 2, 9)


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_any_damage_to_a_snapshot_is_noticed(position: int, bit: int) -> None:
    _, log = open_log(MemoryFiles())
    append(log, "x", producer=Sequenced(5, 3, 40))
    snapshot = bytearray(encode_snapshot(log.producers))
    snapshot[position % len(snapshot)] ^= 1 << bit

    with pytest.raises(DecodeError):
        decode_snapshot(bytes(snapshot))


@pytest.mark.parametrize("content", [b"", b"\0", b"noise" * 20, bytes(100)])
def test_batches_restore_producers_without_a_whole_snapshot(content: bytes) -> None:
    files = MemoryFiles()
    store, log = open_log(files)
    for sequence in range(3):
        append(log, "x", producer=Sequenced(5, 0, sequence))
    sync(log, store)
    store.close()
    path = DATA / "log" / "orders-0" / "00000000000000000003.snapshot"
    files.open(path).content[:] = content

    _, log = open_log(files)

    for sequence in range(3):
        with pytest.raises(DuplicateBatch):
            append(log, "x", producer=Sequenced(5, 0, sequence))
    assert append(log, "x", producer=Sequenced(5, 0, 3)) == 3
