"""The cluster's metadata up to an offset as one file, so that the older log can be deleted."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

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
from headwater.core_log.replication.voters import QuorumVersions, ReplicaKey, Voter
from headwater.core_log.storage.files import Files

FORMAT_VERSION = 1
RECORDS_PER_BATCH = 1000
UNTOLD_VERSIONS = (0, 0)
"""The versions of a voter in a snapshot that was written without them."""
T = TypeVar("T")
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The state of all records below `end_offset`; the last of them is of `epoch`."""

    end_offset: int
    epoch: int
    records: list[MetadataRecord]
    voters: tuple[Voter, ...] = ()
    """The voters of the quorum; none if the log has no record of them."""

    @property
    def name(self) -> str:
        return name_of(self.end_offset, self.epoch)


def name_of(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020d}-{epoch:010d}.checkpoint"


class SnapshotHead(NamedTuple):
    """The beginning of a snapshot: which records it replaces, and who votes after them."""

    end_offset: int
    epoch: int
    voters: tuple[Voter, ...]


class MetadataSnapshots:
    """The snapshot files of one metadata partition, in its directory as in Kafka."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files, self._directory = files, directory

    def newest(self) -> MetadataSnapshot | None:
        """Returns the newest snapshot; raises `CorruptLog` if it is damaged: the log before it may
        be deleted."""
        return self._read_newest(decode_snapshot)

    def newest_head(self) -> SnapshotHead | None:
        """Returns the beginning of the newest snapshot, which may be damaged after it."""
        return self._read_newest(decode_head)

    def _read_newest(self, decode: Callable[[bytes], T]) -> T | None:
        names = self._names()
        if not names:
            return None
        path = self._directory / names[-1]
        try:
            return decode(self._files.read(path))
        except (CorruptBatch, DecodeError) as error:
            raise CorruptLog(
                "metadata snapshot is damaged", file=str(path), found=error.problem
            ) from error

    def write(self, snapshot: MetadataSnapshot, *, now_ms: int) -> None:
        """Writes a snapshot, on disk on return, and removes the older ones."""
        self.put(snapshot, encode_snapshot(snapshot, now_ms=now_ms))

    def put(self, snapshot: MetadataSnapshot, data: bytes) -> None:
        """Writes a snapshot as its leader has it, on disk on return, and removes the older ones."""
        self._files.replace(self._directory / snapshot.name, data)
        for name in self._names():
            if name < snapshot.name:
                self._files.remove(self._directory / name)

    def read(self, end_offset: int, epoch: int) -> bytes | None:
        """Returns the bytes of a snapshot; None if a newer one has taken its place."""
        path = self._directory / name_of(end_offset, epoch)
        return self._files.read(path) if self._files.exists(path) else None

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


def decode_head(data: bytes) -> SnapshotHead:
    for batch in iterate_batches(data):
        head = _read_frame(decode_batch(batch)[1][0].value or b"", "snapshot")
        voters = tuple(_read_voter(each) for each in head.get("voters", ()))
        return SnapshotHead(head["end_offset"], head["epoch"], voters)
    raise DecodeError("snapshot has no beginning", size=len(data))


def decode_snapshot(data: bytes) -> MetadataSnapshot:
    """Returns the snapshot; raises `CorruptBatch` or `DecodeError` unless every record is there."""
    values = [
        record.value or b"" for batch in iterate_batches(data) for record in decode_batch(batch)[1]
    ]
    if len(values) < 2:
        raise DecodeError("snapshot does not end", size=len(data))
    head, tail = decode_head(data), _read_frame(values[-1], "snapshot-end")
    records = [decode_record(value) for value in values[1:-1]]
    if tail["count"] != len(records):
        raise DecodeError("snapshot misses records", expected=tail["count"], found=len(records))
    return MetadataSnapshot(head.end_offset, head.epoch, records, head.voters)


def _read_voter(values: dict[str, Any]) -> Voter:
    key = ReplicaKey(values["id"], UUID(values["directory_id"]))
    versions = QuorumVersions(*values.get("kraft_versions", UNTOLD_VERSIONS))
    return Voter(key, values["host"], values["port"], versions, values.get("replaces"))


def _values(snapshot: MetadataSnapshot) -> Iterator[bytes]:
    voters = [
        {
            "id": each.key.node_id,
            "directory_id": str(each.key.directory_id),
            "host": each.host,
            "port": each.port,
            "kraft_versions": list(each.versions),
            **({} if each.replaces is None else {"replaces": each.replaces}),
        }
        for each in snapshot.voters
    ]
    named = {"voters": voters} if voters else {}
    yield _frame("snapshot", end_offset=snapshot.end_offset, epoch=snapshot.epoch, **named)
    yield from map(encode_record, snapshot.records)
    yield _frame("snapshot-end", count=len(snapshot.records))


def _frame(kind: str, **values: object) -> bytes:
    return orjson.dumps({"version": FORMAT_VERSION, "type": kind, **values})


def _read_frame(value: bytes, kind: str) -> dict[str, Any]:
    try:
        frame: dict[str, Any] = orjson.loads(value)
    except orjson.JSONDecodeError:
        raise DecodeError("snapshot is not framed", expected=kind) from None
    if frame.get("type") != kind or frame.get("version") != FORMAT_VERSION:
        raise DecodeError("snapshot is not framed", expected=kind, found=frame.get("type"))
    return frame
