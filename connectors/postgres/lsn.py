"""Places in the write-ahead log, as numbers and as PostgreSQL writes them."""

from core_log.errors import DecodeError


def lsn_text(lsn: int) -> str:
    """`16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    try:
        return (int(high, 16) << 32) | int(low, 16)
    except ValueError:
        raise DecodeError("this is no place in a write-ahead log", text=text) from None
