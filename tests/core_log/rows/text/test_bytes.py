"""Bytes as text and back: the same whether values are short or long."""

import base64
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from headwater.core_log.rows.text import bytes as byte_text
from headwater.core_log.rows.text.bytes import LONG_BYTES, STANDARD, URL_SAFE

LENGTHS = (0, 1, 2, 3, 4, 57, LONG_BYTES, LONG_BYTES * 9 + 1)
VALUES = [Random(length).randbytes(length) for length in LENGTHS]
COLUMNS = [[*VALUES, None], VALUES[:5] * 50, [VALUES[-1], None, VALUES[-1]], [], [None, None]]
WAYS: dict[str, tuple[Callable[..., pa.Array], Callable[..., pa.Array], Callable[[bytes], bytes]]]
WAYS = {
    "base64": (byte_text.to_base64, byte_text.from_base64, base64.b64encode),
    "base64-url-safe": (
        lambda column: byte_text.to_base64(column, alphabet=URL_SAFE),
        lambda column: byte_text.from_base64(column, alphabet=URL_SAFE),
        base64.urlsafe_b64encode,
    ),
    "hex": (byte_text.to_hex, byte_text.from_hex, lambda value: value.hex().encode()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("values", COLUMNS, ids=len)
def test_every_value_is_written_as_the_standard_says_and_comes_back(
    values: list[bytes | None], way: str
) -> None:
    write, read, standard = WAYS[way]
    column = pa.array([b"before", *values], pa.binary())[1:]

    written = write(column)

    assert written.to_pylist() == [
        None if value is None else standard(value).decode() for value in values
    ]
    written.validate(full=True)
    assert read(written) == pa.array(values, pa.binary())


@pytest.mark.parametrize("padding", ["", "A" * 4 * LONG_BYTES])
@pytest.mark.parametrize("bad", ["A", "AA", "AAA", "A===", "====", "AA=A", "AA==AAAA", "A A=", "é"])
def test_text_that_is_no_base64_is_refused(bad: str, padding: str) -> None:
    for alphabet, foreign in ((STANDARD, "--__"), (URL_SAFE, "++//")):
        for text in (bad, foreign):
            with pytest.raises(ValueError, match=r"base64|adding|haracter|data|ex|length"):
                byte_text.from_base64(pa.array([padding + text]), alphabet=alphabet)


@pytest.mark.parametrize("padding", ["", "0f" * LONG_BYTES])
@pytest.mark.parametrize("bad", ["0", "0g", "0 0f", "é", "\\x0"])
def test_text_that_is_no_hexadecimal_is_refused(bad: str, padding: str) -> None:
    with pytest.raises(ValueError, match=r"base64|adding|haracter|data|ex|length"):
        byte_text.from_hex(pa.array([padding + bad]))
    prefixed = pa.array([f"xy{padding}0F"])
    assert byte_text.from_hex(prefixed, prefix="xy")[0].as_py()[-1:] == b"\x0f"
    with pytest.raises(ValueError, match="output form hex"):
        byte_text.from_hex(prefixed, prefix="xx")
