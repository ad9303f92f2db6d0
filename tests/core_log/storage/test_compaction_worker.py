"""The worker is a process that reports: what it did, or which bytes stopped it."""

import asyncio
import sys
from pathlib import Path

import pytest

from headwater.core_log.foundation.errors import CorruptLog, HeadwaterError, StorageFailed
from headwater.core_log.records.batch_header import HEADER_BYTES, seal
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from headwater.core_log.storage.compaction import (
    WORKER,
    CompactionRequest,
    LastRecord,
    SegmentFacts,
    compact,
)
from headwater.core_log.storage.files import OsFiles
from headwater.core_log.storage.segment import LOG, SUFFIXES, file_name
from headwater.core_log.storage.swap import cleaned_path

pytestmark = pytest.mark.slow


def request_for(
    directory: Path, content: bytes, *, memory_bytes_max: int = 1 << 20
) -> CompactionRequest:
    (directory / file_name(0, LOG)).write_bytes(content)
    return CompactionRequest(
        directory=str(directory),
        segments=(SegmentFacts(0, len(content), 0, 0),),
        first_dirty_offset=0,
        end_offset=6,
        now_ms=1000,
        delete_retention_ms=10,
        segment_bytes=1 << 20,
        index_bytes=1 << 20,
        index_interval_bytes=4096,
        last_records={7: LastRecord(0, None)},
        memory_bytes_max=memory_bytes_max,
    )


def batches(compression: int = 0) -> list[bytearray]:
    return [
        encode_batch(
            [PlainRecord(b"a", b"%d" % base, (), 5), PlainRecord(b"b%d" % base, b"x", (), 6)],
            base_offset=base,
            compression=compression,
        )
        for base in (0, 2, 4)
    ]


async def test_a_process_compacts_and_answers(tmp_path: Path) -> None:
    request = request_for(tmp_path, b"".join(batches()))

    result = await compact(request)

    assert CompactionRequest.from_json(request.to_json()) == request
    assert (result.records, result.records_kept, result.keys) == (6, 4, 4)
    (swap,) = result.swaps
    assert (swap.base_offset, swap.end_offset, result.first_dirty_offset) == (0, 6, 6)
    for suffix in SUFFIXES:
        assert cleaned_path(tmp_path, 0, suffix).exists()
    assert cleaned_path(tmp_path, 0, LOG).stat().st_size == swap.size
    assert OsFiles().read(tmp_path / file_name(0, LOG)) == b"".join(batches()), "nothing replaced"


@pytest.mark.parametrize("compression", [0, 4])
async def test_damage_stops_it_and_is_named(tmp_path: Path, compression: int) -> None:
    stored = batches(compression)
    stored[1][-2] ^= 1

    with pytest.raises(CorruptLog, match="checksum") as raised:
        await compact(request_for(tmp_path, b"".join(stored)))

    facts = raised.value.facts
    assert facts["file"] == str(tmp_path / file_name(0, LOG))
    assert (facts["position"], facts["offset"]) == (len(stored[0]), 2)


@pytest.mark.parametrize("compression", [0, 4])
async def test_a_batch_that_does_not_hold_what_it_says_stays_and_the_others_are_compacted(
    tmp_path: Path, compression: int
) -> None:
    stored = batches(compression)
    stored[1] = stored[1][:HEADER_BYTES] + b"\x7f" * (len(stored[1]) - HEADER_BYTES)
    seal(stored[1])

    result = await compact(request_for(tmp_path, b"".join(stored)))

    cleaned = cleaned_path(tmp_path, 0, LOG).read_bytes()
    first, second, third = iterate_batches(cleaned)
    assert result.unreadable == (2,)
    assert bytes(second) == stored[1]
    assert [each.key for each in decode_batch(first)[1]] == [b"b0"]
    assert [each.key for each in decode_batch(third)[1]] == [b"a", b"b4"]


async def test_a_file_that_ends_early_is_damage(tmp_path: Path) -> None:
    content = b"".join(batches())[:-5]

    with pytest.raises(CorruptLog, match="ends inside a batch"):
        await compact(request_for(tmp_path, content))


async def test_keys_beyond_memory_are_reported(tmp_path: Path) -> None:
    with pytest.raises(HeadwaterError, match="more keys"):
        await compact(request_for(tmp_path, b"".join(batches()), memory_bytes_max=40))


async def test_a_worker_that_fails_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    request = request_for(tmp_path, b"".join(batches()))
    (tmp_path / file_name(0, LOG)).unlink()

    with pytest.raises(StorageFailed, match="No such file"):
        await compact(request)


async def test_a_worker_ends_with_its_parent() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", WORKER, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None

    process.stdin.close()  # as when the parent is killed

    assert await process.wait() != 0
