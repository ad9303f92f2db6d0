"""The compiled writer of JSON gives the texts of the plain one, and the plain one Python's."""

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.connectors.mysql.kernels.json_texts import write_documents
from headwater.connectors.mysql.kernels.kernels import MysqlKernels, kernels_of
from headwater.core_log.foundation.errors import DecodeError
from headwater.core_log.rows.arrow_buffers import bytes_and_offsets
from tests.connectors.mysql.kernels.json_writer import document_of

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.integers(-70_000, 70_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**9), 10**9, places=3).map(float)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=30,
)
FAST, PLAIN = kernels_of("fast"), kernels_of("python")


@pytest.mark.property
@given(st.lists(st.none() | VALUES.map(lambda value: [value]), min_size=1, max_size=20))
def test_both_write_the_same_text_and_python_reads_the_value(values: list[Any]) -> None:
    documents = pa.array([each and document_of(each) for each in values], pa.binary())

    fast, plain = FAST.documents(documents), PLAIN.documents(documents)

    assert fast.to_pylist() == plain.to_pylist()
    assert [each and json.loads(each) for each in fast.to_pylist()] == values


@pytest.mark.property
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 10**65 - 1), st.integers(0, 30)), min_size=1)
)
def test_decimals_have_all_their_digits(parts: list[tuple[bool, int, int]]) -> None:
    values = [
        Decimal((int(is_negative), tuple(map(int, str(digits))), -min(scale, 30)))
        for is_negative, digits, scale in parts
    ]
    documents = pa.array([document_of({"n": [each, 1]}) for each in values], pa.binary())

    fast, plain = FAST.documents(documents).to_pylist(), PLAIN.documents(documents).to_pylist()

    assert fast == plain == [f'{{"n": [{each:f}, 1]}}' for each in values]
    data, offsets = bytes_and_offsets(documents)
    assert not write_documents(data, offsets)[2].any(), "none is left to Python"


@pytest.mark.property
@given(VALUES, st.data())
def test_a_broken_document_has_the_same_end_with_both(value: Any, data: st.DataObject) -> None:
    whole = bytearray(document_of([value]))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    broken = pa.array([bytes(whole[: data.draw(st.integers(0, len(whole)))])], pa.binary())

    assert told(FAST, broken) == told(PLAIN, broken)


@pytest.mark.parametrize("kernels", [FAST, PLAIN], ids=["fast", "python"])
@pytest.mark.parametrize(
    "value", [["x" * 70_000, {"n": 70_000, "m": -70_000}], [0] * 30_000, {"a": [[[[]]], {}]}]
)
def test_documents_of_the_large_form_are_read(kernels: MysqlKernels, value: Any) -> None:
    [text] = kernels.documents(pa.array([document_of(value)])).to_pylist()

    assert json.loads(text) == value


@pytest.mark.parametrize("kernels", [FAST, PLAIN], ids=["fast", "python"])
def test_a_text_that_is_cut_within_a_character_is_an_error(kernels: MysqlKernels) -> None:
    with pytest.raises(DecodeError, match="broken"):
        kernels.documents(pa.array([b"\xff[1, 2]\xc2"], pa.binary()))


def told(kernels: MysqlKernels, documents: pa.Array) -> str:
    try:
        return str(kernels.documents(documents).to_pylist())
    except DecodeError as error:
        return f"error: {error}"
