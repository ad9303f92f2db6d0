"""Text of the values that drivers of databases return, and the words for true and false."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TRUE, FALSE = pa.array(["t", "1", "true"]), pa.array(["f", "0", "false"])


def value_text(value: Any) -> str | None:
    """Returns the text of one value; a decimal has no exponent."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def text_to_booleans(texts: pa.StringArray) -> pa.BooleanArray:
    """Raises `ValueError` for other numbers: MySQL's `tinyint(1)` can hold any small number."""
    words = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(words, value_set=each) for each in (TRUE, FALSE))
    if pc.any(pc.invert(pc.or_(pc.or_(is_true, is_false), words.is_null()))).as_py():
        raise ValueError("the text is neither true nor false")
    return pc.if_else(words.is_valid(), is_true, None)
