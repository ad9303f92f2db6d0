"""Numbers that look like chance, and are a function of seed, name and place."""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.core_log.foundation.array_types import Int64Array

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


class RandomColumns:
    """One world of numbers per seed; each name in it is a sequence of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def numbers(self, name: str, at: Int64Array, *, below: int | Int64Array) -> Int64Array:
        """For each place a number from 0 up to, and without, `below`: splitmix64."""
        mixed = at.astype(np.uint64) * _STEP + _start_of(self.seed, name)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
        mixed ^= mixed >> np.uint64(31)
        found: Int64Array = (mixed % np.asarray(below).astype(np.uint64)).astype(np.int64)
        return found

    def pick(self, name: str, at: Int64Array, choices: pa.Array) -> pa.Array:
        """For each place one of the choices."""
        return choices.take(pa.array(self.numbers(name, at, below=len(choices))))


@cache
def _start_of(seed: int, name: str) -> np.uint64:
    digest = blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def decimals(unscaled: Int64Array, *, precision: int, scale: int) -> pa.Array:
    """Decimals from their digits without the point: an int64 is the lower half of a decimal128."""
    halves = np.stack((unscaled, unscaled >> 63), axis=1)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(halves))]
    return pa.Array.from_buffers(pa.decimal128(precision, scale), len(unscaled), buffers)


def times(microseconds: Int64Array, *, zone: str | None = None) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", zone))


def texts(*words: str | None) -> pa.Array:
    return pa.array(words, pa.string())


def combine_words(first: Sequence[str], second: Sequence[str]) -> pa.Array:
    """Every word of one list with every word of the other."""
    return pa.array([f"{one} {other}" for one in first for other in second], pa.string())


def tile(pattern: Sequence[Any], times: int) -> Int64Array:
    return np.tile(np.array(pattern, dtype=np.int64), times)
