"""Record batches into both decoders: the plain one and the columnar one, which have to agree."""

from random import Random

from headwater.core_log.foundation.errors import HeadwaterError
from headwater.core_log.records.arrow_codec import decode
from headwater.core_log.records.compression import Compression
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from tests.fuzz.checksums import sealed

SEALED = 1


def seeds() -> list[bytes]:
    random, found = Random(1), []
    for compression in Compression:
        records = [
            PlainRecord(b"key", None if place == 3 else random.randbytes(20), [("h", b"v")], 1000)
            for place in range(5)
        ]
        batch = encode_batch(records, compression=compression, producer_id=3, producer_epoch=0)
        found += [bytes([SEALED]) + batch, bytes([0]) + batch + batch]
    return found


Row = tuple[int, bytes | None, bytes | None, int]


class Target:
    """Neither may fail in a way of its own, and what both read is the same."""

    def __call__(self, data: bytes) -> None:
        batch = sealed(data[1:]) if data[:1] == bytes([SEALED]) else data[1:]
        plain, columns = rows_of_plain(batch), rows_of_columns(batch)
        if plain is not None and columns is not None:
            assert plain == columns, "the decoders disagree"


def rows_of_plain(data: bytes) -> list[Row] | None:
    found = list[Row]()
    try:
        for batch in iterate_batches(data):
            header, records = decode_batch(batch)
            if not header.is_control:
                found += [
                    (each.offset, each.key, each.value, each.timestamp_ms) for each in records
                ]
    except HeadwaterError:
        return None
    return found


def rows_of_columns(data: bytes) -> list[Row] | None:
    try:
        columns = decode(data)
    except HeadwaterError:
        return None
    return list(
        zip(
            columns.offsets.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            columns.timestamps_ms.tolist(),
            strict=True,
        )
    )
