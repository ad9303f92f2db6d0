"""The sides of a comparison, and its result."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.errors import (
    BeingReadAgain,
    Cure,
    HeadwaterError,
    LogUnavailable,
    NothingApplied,
    failure_of,
)
from headwater.core_log.model.changes import Operation, TableChanges
from headwater.core_log.rows.digests import Digests
from headwater.core_log.rows.schema_text import declare_nan_columns
from headwater.pipelines.loops.deliver.slice_reader import RecordOffset
from headwater.pipelines.time_travel.history.cut_points import CutPoint
from headwater.pipelines.time_travel.verify.keyed_diff import ComparisonResult
from headwater.pipelines.time_travel.verify.log_state import ComparedColumns
from headwater.pipelines.time_travel.verify.table_selection import ComparedTable
from headwater.sinks.sink import DeletedRows

KEYS_NAMED = 20


@dataclass(slots=True)
class IncomparableRows:
    """Rows of one table, as its source was read last. Nobody may delete them from the log."""

    keys: list[pa.RecordBatch] = field(default_factory=list)
    """As targets call them."""
    nameless: int = 0
    """Rows of which not even the key could be read."""

    @property
    def count(self) -> int:
        return self.nameless + sum(len(batch) for batch in self.keys)

    def add(self, deletes: Sequence[TableChanges]) -> None:
        """Deletes of their keys, which have come the way of all changes."""
        for changes in deletes:
            keys = changes.keys
            if not keys.num_columns:
                self.nameless += len(changes)
                continue
            is_whole = np.logical_and.reduce([np.asarray(each.is_valid()) for each in keys.columns])
            self.nameless += int((~is_whole).sum())
            self.keys.append(keys.filter(pa.array(is_whole)))

    @property
    def named(self) -> list[Mapping[str, Any]]:
        """The first of the keys."""
        whole = (key for batch in self.keys for key in batch.slice(0, KEYS_NAMED).to_pylist())
        return [*islice(whole, KEYS_NAMED)]

    def digests(self, shape: ComparedColumns) -> Digests:
        of_keys = ComparedColumns(shape.schema, shape.schema.key)
        found = [of_keys.digests(of_keys.project(batch))[0] for batch in self.keys]
        return np.concatenate(found) if found else np.zeros(0, np.uint64)


def deletes_of(changes: TableChanges) -> TableChanges:
    """Returns deletes of their keys alone: such changes pass every filter."""
    schema, count = declare_nan_columns(changes.schema), len(changes)
    columns = [
        changes.rows.column(each.name) if each.name in schema.key else pa.nulls(count, each.type)
        for each in schema.columns
    ]
    return replace(
        changes,
        schema=schema,
        rows=pa.RecordBatch.from_arrays(columns, schema=schema.arrow),
        operations=pa.array(np.full(count, Operation.DELETE, np.uint8)),
        before=None,
    )


logger = logging.getLogger(__name__)

SOURCE = "source"
UNREAD_NAMED = 20


@dataclass(frozen=True, slots=True)
class ComparedSides:
    source: bool = True
    targets: bool = True
    only: str | None = None
    """Names of targets."""


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """The comparison of one table of one side with the log."""

    subject: ComparedTable
    side: str
    """`source`, or the sink's name."""
    shape: ComparedColumns
    cut_point: CutPoint
    compared: ComparisonResult
    named: Sequence[Mapping[str, Any]] = ()
    """The first differing keys, with their difference."""
    left_out: tuple[str, ...] = ()
    """Columns that this side does not return unchanged."""
    problem: str = ""
    """Why the comparison failed."""
    is_unreachable: bool = False
    """Whether the other side only does not answer now."""
    is_reread: bool = False
    """Whether the table is being read again at its source."""
    has_begun: bool = True
    """Whether this target has applied anything of the table."""
    unrepaired: str = ""
    """Why the differences could not be repaired."""
    behind: int = 0
    """Offsets of the log that this target has not reached yet; they are not compared."""
    took_ms: int = 0
    repaired: int = 0
    """Rows that were rewritten before this comparison."""
    unread: Sequence[RecordOffset] = ()
    """Undecodable or untransformable records of the log without a successor: whether their rows are
    equal is unknown."""
    deleted: DeletedRows = DeletedRows.GONE
    """How this side keeps deleted rows."""
    incomparable: IncomparableRows = field(default_factory=IncomparableRows)
    """Rows of the source with values that are rejected on their way."""

    dead: Sequence[RecordOffset] = ()
    """Dead letters of this target, whose rows it lacks."""

    @property
    def name(self) -> tuple[str, str]:
        return str(self.subject.target), self.side

    @property
    def is_as_told(self) -> bool:
        """Returns whether the side has everything that the log has."""
        return not self.problem and not self.compared.differing

    @property
    def is_equal(self) -> bool:
        is_whole = not (self.unread or self.dead or self.incomparable.count)
        return self.is_as_told and is_whole

    @property
    def is_failed(self) -> bool:
        """Returns whether a part could not be compared though both sides answered."""
        is_left_out = bool(self.unread or self.dead or self.incomparable.count)
        return is_left_out or bool(self.problem and not self.is_unreachable)

    def unread_lines(self) -> Iterator[str]:
        for (topic, partition), offset in self.unread[:UNREAD_NAMED]:
            yield f"{topic}-{partition} has a record at offset {offset:,} that cannot be read"
        if len(self.unread) > UNREAD_NAMED:
            yield f"and {len(self.unread) - UNREAD_NAMED:,} more records cannot be read"
        if count := self.incomparable.count:
            yield f"rows of the source with values that become dead letters: {count:,}"
        for (topic, partition), offset in self.dead[:UNREAD_NAMED]:
            yield f"{topic}-{partition} has a dead letter of this target at offset {offset:,}"
        if len(self.dead) > UNREAD_NAMED:
            yield f"and {len(self.dead) - UNREAD_NAMED:,} more dead letters"


@contextmanager
def outcomes(
    subject: ComparedTable, sides: Iterable[str], *, into: list[TableVerdict]
) -> Iterator[None]:
    """Returns the verdicts. An exception is the verdict of this table's sides without one; only an
    unreachable log ends the whole comparison."""
    try:
        yield
    except LogUnavailable:
        raise
    except Exception as error:
        done = {each.side for each in into if each.subject is subject}
        into += [failed_verdict(subject, side, error) for side in sides if side not in done]


def failed_verdict(subject: ComparedTable, side: str, error: Exception) -> TableVerdict:
    """Returns the verdict of a table that could not be compared."""
    if not isinstance(error, HeadwaterError):
        logger.error("%s in %s is not compared", subject.target, side, exc_info=error)
    failure = failure_of(error)
    return TableVerdict(
        subject,
        side,
        ComparedColumns(subject.schema, subject.schema.names),
        CutPoint({}, ""),
        ComparisonResult(0),
        problem=str(failure),
        is_unreachable=failure.cure is Cure.TIME,
        is_reread=isinstance(failure, BeingReadAgain),
        has_begun=not isinstance(failure, NothingApplied),
    )
