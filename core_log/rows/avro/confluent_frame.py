"""Confluent's wire format: a zero, the schema's number in four bytes, the value."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array, UInt8Array
from headwater.core_log.foundation.errors import RowsRejected
from headwater.core_log.rows.arrow_buffers import stretches
from headwater.core_log.rows.avro.reader import AvroReader
from headwater.core_log.rows.converters.row import refuse
from headwater.core_log.rows.rejects import whole_or_rejected

MAGIC = b"\x00"
NUMBER_BYTES = 4
FRAME_BYTES = len(MAGIC) + NUMBER_BYTES


def frame(number: int) -> bytes:
    return MAGIC + number.to_bytes(NUMBER_BYTES, "big")


def read_framed(
    values: pa.BinaryArray, reader_of: Callable[[int], AvroReader]
) -> Iterator[tuple[Int64Array, pa.StructArray]]:
    """For each schema the rows written under it, and their values; raises `RowsRejected`."""
    data, offsets = stretches(values)
    lengths = np.diff(offsets)
    is_framed = lengths > FRAME_BYTES
    if len(data):
        is_framed &= data[np.minimum(offsets[:-1], len(data) - 1)] == 0
    refuse({"the value does not begin with the number of a schema": pa.array(~is_framed)})
    if not len(values):
        return
    heads = data[offsets[:-1, None] + np.arange(len(MAGIC), FRAME_BYTES)]
    numbers = heads.copy().view(">u4").reshape(-1)
    for number in np.unique(numbers).tolist():
        rows = np.flatnonzero(numbers == number)
        starts, ends = offsets[:-1][rows] + FRAME_BYTES, offsets[1:][rows]
        yield rows, _read(data, starts, ends, rows, reader_of(number), number)


def _read(
    data: UInt8Array,
    starts: Int64Array,
    ends: Int64Array,
    rows: Int64Array,
    reader: AvroReader,
    number: int,
) -> pa.StructArray:
    try:
        return whole_or_rejected(
            len(rows),
            lambda first, last: reader.read(data, starts[first:last], ends[first:last]),
            lambda _: f"the value is none of schema {number}",
            "records are no values of their schema",
        )
    except RowsRejected as error:
        reasons = {int(rows[place]): why for place, why in error.reasons.items()}
        raise RowsRejected(error.problem, reasons=reasons) from None
