"""The cluster's metadata up to an offset as one file, so that the older log can be deleted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from headwater.core_log.foundation.errors import CorruptBatch, CorruptLog, DecodeError
from headwater.core_log.records.record_codec import (
    PlainRecord,
    decode_batch,
    encode_batch,
    iterate_batches,
)
from headwater.core_log.replication.metadata_records import (
    MetadataRecord,
    decode_record,
    encode_record,
)
from headwater.core_log.storage.files import Files

FORMAT_VERSION = 1
RECORDS_PER_BATCH = 1000
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state of all records below `end_offset`; the last of them is of `epoch`."""

    end_offset: int
    epoch: int
    records: list[MetadataRecord]

    @property
    def name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class MetadataSnapshots:
    """The snapshot files of one metadata partition, in its directory as in Kafka."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._directory = files, directory

    def newest(self) -> MetadataSnapshot | None:
        """Returns the newest snapshot; raises `CorruptLog` if it is damaged: the log before it may
        be deleted."""
        names = self._names()
        if not names:
            return None
        path = self._directory / names[-1]
        try:
            return decode_snapshot(self._files.read(path))
        except (CorruptBatch, DecodeError) as error:
            raise CorruptLog(
                "metadata snapshot is damaged", file=str(path), found=error.problem
            ) from error

    def write(self, snapshot: MetadataSnapshot, *, now_ms: int) -> None:
        """Writes a snapshot, on disk on return, and removes the older ones."""
        data = encode_snapshot(snapshot, now_ms=now_ms)
        self._files.replace(self._directory / snapshot.name, data)
        for name in self._names():
            if name < snapshot.name:
                self._files.remove(self._directory / name)

    def _names(self) -> list[str]:
        return sorted(each for each in self._files.names(self._directory) if _NAME.fullmatch(each))


def encode_snapshot(snapshot: MetadataSnapshot, *, now_ms: int) -> bytes:
    """Returns record batches like the log's own, between an opening and a closing record."""
    out, offset, part = bytearray(), 0, list[PlainRecord]()
    for value in _values(snapshot):
        part.append(PlainRecord(None, value, timestamp_ms=now_ms))
        if len(part) == RECORDS_PER_BATCH:
            out += encode_batch(part, base_offset=offset, leader_epoch=snapshot.epoch)
            offset += len(part)
            part = []
    if part:
        out += encode_batch(part, base_offset=offset, leader_epoch=snapshot.epoch)
    return bytes(out)


def decode_snapshot(data: bytes) -> MetadataSnapshot:
    """Returns the snapshot; raises `CorruptBatch` or `DecodeError` unless every record is there."""
    values = [
        record.value or b"" for batch in iterate_batches(data) for record in decode_batch(batch)[1]
    ]
    if len(values) < 2:
        raise DecodeError("snapshot does not end", size=len(data))
    head, tail = _read_frame(values[0], "snapshot"), _read_frame(values[-1], "snapshot-end")
    records = [decode_record(value) for value in values[1:-1]]
    if tail["count"] != len(records):
        raise DecodeError("snapshot misses records", expected=tail["count"], found=len(records))
    return MetadataSnapshot(head["end_offset"], head["epoch"], records)


def _values(snapshot: MetadataSnapshot) -> Iterator[bytes]:
    yield _frame("snapshot", end_offset=snapshot.end_offset, epoch=snapshot.epoch)
    yield from map(encode_record, snapshot.records)
    yield _frame("snapshot-end", count=len(snapshot.records))


def _frame(kind: str, **values: int) -> bytes:
    return orjson.dumps({"version": FORMAT_VERSION, "type": kind, **values})


def _read_frame(value: bytes, kind: str) -> dict[str, Any]:
    try:
        frame: dict[str, Any] = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise DecodeError("snapshot is not framed", expected=kind) from None
    if frame.get("type") != kind or frame.get("version") != FORMAT_VERSION:
        raise DecodeError("snapshot is not framed", expected=kind, found=frame.get("type"))
    return frame
