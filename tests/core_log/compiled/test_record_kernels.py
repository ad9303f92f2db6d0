"""The compiled walk goes where the plain one goes, and stops at the same damage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.records import record_fields
from headwater.core_log.records.record_codec import encode_varint
from headwater.core_log.records.record_fields import RecordSections, record_bounds

pytest.importorskip("numba")
LENGTHS = st.lists(st.integers(6, 9_000), min_size=1, max_size=30)


def bounds(section: bytes, count: int, *, compiled_from: int) -> list[list[int]] | str:
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(record_fields, "_COMPILED_RECORDS_MIN", compiled_from)
        data = np.frombuffer(section, np.uint8)
        ends = np.array([len(section)])
        try:
            found = record_bounds(RecordSections(data, np.array([0]), ends, np.array([count])))
        except DecodeError as error:
            return error.problem
    return [each.tolist() for each in found]


def section_of(lengths: list[int]) -> bytes:
    return b"".join(encode_varint(length) + bytes(length) for length in lengths)


@given(LENGTHS)
def test_every_record_is_found(lengths: list[int]) -> None:
    section = section_of(lengths)

    assert bounds(section, len(lengths), compiled_from=0) == bounds(
        section, len(lengths), compiled_from=1 << 30
    )


@given(LENGTHS, st.integers(0, 10_000), st.binary(min_size=1, max_size=12))
def test_damage_is_refused_in_the_same_words(lengths: list[int], at: int, noise: bytes) -> None:
    section = section_of(lengths)
    at %= len(section)
    damaged = section[:at] + noise + section[at + len(noise) :]

    assert bounds(damaged, len(lengths), compiled_from=0) == bounds(
        damaged, len(lengths), compiled_from=1 << 30
    )
