"""Records of the log by offset, as changes for targets."""

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import RecordsRejected
from headwater.core_log.model.changes import TableChanges
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.pipelines.loops.deliver.decoder import RecordDecoder
from headwater.pipelines.loops.deliver.slice_reader import AfterLog

RecordOffset = tuple[TopicPartition, int]
"""The place of a record in the log."""
ONE_BATCH = FetchLimit(bytes_max=1)
"""A fetch returns at least one batch, even above the limit."""


async def changes_at(
    log: Log, places: Collection[RecordOffset], after_log: AfterLog | None
) -> list[TableChanges]:
    """Yields changes in offset order; each batch of the log is read once.

    Without `after_log` they are as in the log. Undecodable records in between are skipped.
    """
    wanted: dict[TopicPartition, list[int]] = {}
    for partition, offset in sorted(places):
        wanted.setdefault(partition, []).append(offset)
    decoder, found = RecordDecoder(log), list[TableChanges]()
    for partition, offsets in wanted.items():
        at, skipped = 0, set[int]()
        while at < len(offsets):
            answer = await log.fetch(
                {partition: offsets[at]}, limit=ONE_BATCH, isolation=Isolation.COMMITTED
            )
            if not answer:
                break  # compaction has removed all that was left
            [fetched] = answer
            end = int(np.searchsorted(offsets, fetched.next_offset))
            chosen = offsets[at:end]
            try:
                made = await decoder.decode(
                    fetched, from_offset=chosen[0], end=chosen[-1] + 1, skipped=skipped
                )
            except RecordsRejected as error:
                skipped.update(error.reasons)
                continue
            for decoded in made:
                changes = decoded.changes
                assert changes.log_offsets is not None, "what was read knows its place"
                mask = np.isin(changes.log_offsets.to_numpy(), chosen)
                if not mask.any():
                    continue
                chosen_rows = changes.filter(pa.array(mask))
                if after_log is None:
                    found.append(chosen_rows)
                else:
                    found += after_log.apply(chosen_rows, may_have_gaps=False)
            at = end
    return found
