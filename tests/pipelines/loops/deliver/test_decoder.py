"""Records come back whole and in order, however many parts of a fetch are taken at a time."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.core_log.model.log import FetchLimit, Isolation, TopicPartition
from headwater.pipelines.loops import thread_offload
from headwater.pipelines.loops.deliver import decoder as decoder_module
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from tests.pipelines.time_travel.world import World, tell

pytestmark = pytest.mark.slow

PIPELINE = """
pipeline: copy
source:
  {type: generator, mode: wide, size: 1000, total: 3000, rate: 0, updates: 0.8, deletes: 0.05,
    batch_rows: 200, batch_wait: 0ms}
sink: {type: console}
limits: {transaction_size: 16KiB}
"""
PLACE = TopicPartition("copy.shop.wide", 0)
SKIPPED = frozenset({7, 300, 301})

Told = list[tuple[int, int, dict[str, object]]]


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("part_bytes", [1, 30_000])
@pytest.mark.parametrize("end", [450, 3_000])
def test_parts_make_the_same_changes_as_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_bytes: int, end: int, is_alone: bool
) -> None:
    async def told(world: World) -> Told:
        [fetched] = await world.log.fetch(
            {PLACE: 0}, limit=FetchLimit(bytes_max=64 << 20), isolation=Isolation.COMMITTED
        )
        decoder = RecordDecoder(world.log, is_alone=is_alone)
        pieces = await decoder.decode(fetched, from_offset=0, end=end, skipped=SKIPPED)
        return [each for piece in pieces for each in _rows(piece.changes.log_offsets, piece)]

    async def story(world: World) -> tuple[Told, Told]:
        await world.run("source")
        whole = await told(world)
        monkeypatch.setattr(decoder_module, "PART_BYTES", part_bytes)
        monkeypatch.setattr(thread_offload, "THREAD_BYTES_MIN", 1)
        monkeypatch.setattr(thread_offload, "PART_ROWS_MIN", 10)
        return whole, await told(world)

    whole, in_parts = tell(tmp_path, PIPELINE, story)

    offsets = {offset for offset, _, _ in whole}
    assert len(offsets) > end * 0.9, "all but markers, tombstones and what was skipped"
    assert max(offsets) < end and not offsets & SKIPPED
    assert in_parts == whole


def _rows(
    offsets: pa.Int64Array | None, piece: decoder_module.DecodedChanges
) -> Sequence[tuple[int, int, dict[str, object]]]:
    assert offsets is not None
    rows = piece.changes.rows.to_pylist()
    operations = piece.changes.operations.to_pylist()
    return list(zip(offsets.to_pylist(), operations, rows, strict=True))
