"""Where records begin, as the first pass of a compaction found, for the second to find again."""

import numpy as np

from headwater.core_log.foundation.array_types import Int64Array
from headwater.core_log.storage.segment_chunks import ChunkRecords, ChunkRows, SegmentChunk


class RecordStarts:
    """What the first pass learnt by walking, kept for the second as far as memory allows."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max
        self._known: dict[tuple[str, int], tuple[ChunkRows, ChunkRows]] = {}

    def keep(self, chunk: SegmentChunk, stretch: ChunkRecords) -> None:
        starts = stretch.fields.starts
        if stretch.data is chunk.data and 4 * len(starts) <= self._room:
            self._room -= 4 * len(starts)
            self._known[chunk.file, chunk.position] = (stretch.rows, starts.astype(np.uint32))

    def take(self, chunk: SegmentChunk, rows: ChunkRows) -> Int64Array | None:
        """Where every record of these rows begins, if exactly these were walked."""
        known = self._known.pop((chunk.file, chunk.position), None)
        if known is None or not np.array_equal(known[0], rows):
            return None
        starts: Int64Array = known[1].astype(np.int64)
        return starts
