"""Copies values out of a buffer into columns, by whole columns."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import BoolArray, Int32Array, UInt8Array


def gather_plainly(
    buffer: UInt8Array, bounds: Int32Array, missing: Mapping[int, BoolArray]
) -> list[pa.BinaryArray]:
    """Returns a column per line of `bounds`, which has the begin and end of every value in turn.

    The values and the gaps between them are one array over the buffer itself, and every other
    element is a value.
    """
    length = bounds.shape[1]
    content = pa.py_buffer(buffer)
    places = np.arange(0, length, 2, dtype=np.int32)
    all_of_them = pa.array(places)
    found = list[pa.BinaryArray]()
    for column, places_of_column in enumerate(bounds):
        is_missing = missing.get(column)
        picks = all_of_them if is_missing is None else pa.array(places, mask=is_missing)
        values_and_gaps = pa.Array.from_buffers(
            pa.binary(), length - 1, [None, pa.py_buffer(places_of_column), content]
        )
        found.append(values_and_gaps.take(picks))
    return found
