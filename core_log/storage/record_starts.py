"""Where records begin, as the first pass of a compaction found, for the second to find again."""

import numpy as np

from core_log.records.varint import Int64s
from core_log.storage.segment_chunks import Chunk, Rows, Stretch


class RecordStarts:
    """What the first pass learnt by walking, kept for the second as far as memory allows."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max
        self._known: dict[tuple[str, int], tuple[Rows, Rows]] = {}

    def keep(self, chunk: Chunk, stretch: Stretch) -> None:
        starts = stretch.fields.starts
        if stretch.data is chunk.data and 4 * len(starts) <= self._room:
            self._room -= 4 * len(starts)
            self._known[chunk.file, chunk.position] = (stretch.rows, starts.astype(np.uint32))

    def take(self, chunk: Chunk, rows: Rows) -> Int64s | None:
        """Where every record of these rows begins, if exactly these were walked."""
        known = self._known.pop((chunk.file, chunk.position), None)
        if known is None or not np.array_equal(known[0], rows):
            return None
        starts: Int64s = known[1].astype(np.int64)
        return starts
