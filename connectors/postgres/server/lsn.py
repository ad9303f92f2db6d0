"""LSNs (positions in the write-ahead log), as numbers and in PostgreSQL's text form."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.core_log.foundation.errors import DecodeError

DIGITS = np.frombuffer(b"0123456789ABCDEF", np.uint8)
HALF_DIGITS = 8
SHIFTS = np.arange(4 * (HALF_DIGITS - 1), -1, -4)


def lsn_text(lsn: int) -> str:
    """Returns `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_texts(lsns: npt.NDArray[np.int64]) -> pa.StringArray:
    """Returns the texts of many LSNs."""
    high, low = _hex(lsns >> 32), _hex(lsns & 0xFFFFFFFF)
    return pc.binary_join_element_wise(high, low, "/")


def parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    try:
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise DecodeError("the text is not an LSN", text=text) from None


def _hex(numbers: npt.NDArray[np.int64]) -> pa.StringArray:
    """Returns hexadecimal digits without leading zeros."""
    digits = DIGITS[(numbers[:, None] >> SHIFTS) & 0xF]
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * HALF_DIGITS
    text = pa.Array.from_buffers(
        pa.string(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(digits.ravel())]
    )
    return pc.if_else(pa.array(numbers == 0), "0", pc.ascii_ltrim(text, "0"))
