"""Compressed frames, damaged ones and bombs: read within the limit, or refused."""

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.records.compression import Compression, compress, decompress

BYTES_MAX = 4 << 20
CODES = [each for each in Compression if each is not Compression.NONE]


def seeds() -> list[bytes]:
    small, bomb = b"abc" * 40, bytes(BYTES_MAX * 4)
    return [
        bytes([place]) + bytes(compress(code, content))
        for place, code in enumerate(CODES)
        for content in (b"", small, bomb)
        if len(bytes(compress(code, content))) < 30_000
    ]


class Target:
    """Whatever comes out is no larger than asked for."""

    def __call__(self, data: bytes) -> None:
        try:
            code = CODES[data[0] % len(CODES)] if data else Compression.GZIP
            out = decompress(code, data[1:], bytes_max=BYTES_MAX)
        except HeadwaterError:
            return
        assert len(out) <= BYTES_MAX, "more came out than was allowed"
