"""A few rows of a source through all transforms, as they were and as they arrive."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.changes import TableChanges
from headwater.pipelines.file.loader import LoadedPipeline
from headwater.pipelines.loops.assembly import make_source
from headwater.pipelines.preview.plan import before_log_of
from headwater.pipelines.transforms.after_log import RowTransforms
from headwater.pipelines.transforms.before_log import MasksAndDrops

BATCHES_MAX = 20


@dataclass(slots=True)
class SampledRows:
    """Rows of one table of the source, and what becomes of them."""

    table: str
    before: list[dict[str, Any]] = field(default_factory=list)
    after: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Each with the table of the target that it goes to."""


async def sample_of(loaded: LoadedPipeline, *, rows: int, clock: Clock) -> Sequence[SampledRows]:
    """Reads from the beginning until every table has enough, and at most a few batches."""
    before_log = before_log_of(loaded)
    after_log = RowTransforms(loaded.spec.transform, loaded.spec.route, directory=loaded.directory)
    source = make_source(loaded, clock=clock, until_end=True)
    wanted = {str(schema.table) for schema in await source.discover()}
    samples: dict[str, SampledRows] = {}
    seen = 0
    async with aclosing(source.changes({})) as batches:
        async for batch in batches:
            for changes in batch.tables:
                table = str(changes.schema.table)
                sample = samples.setdefault(table, SampledRows(table))
                missing = rows - len(sample.before)
                if missing > 0 and not changes.is_truncate:
                    some = changes.take(pa.array(range(min(missing, len(changes)))))
                    sample.before += some.rows.to_pylist()
                    sample.after += _transformed_rows(some, before_log, after_log)
            seen += 1
            is_full = wanted <= {
                each.table for each in samples.values() if len(each.before) >= rows
            }
            if is_full or seen == BATCHES_MAX:
                break
    return list(samples.values())


def _transformed_rows(
    some: TableChanges, before_log: MasksAndDrops, after_log: RowTransforms
) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(routed.schema.table), row)
        for routed in after_log.apply(before_log.apply(some))
        for row in routed.rows.to_pylist()
    ]
