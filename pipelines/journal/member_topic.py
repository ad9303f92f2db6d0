"""Records of the members of `__headwater-workers` in the log: the order in which versions of a file
were run first, and each member's last report of its tasks."""

import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from headwater.core_log.foundation.settings import TopicSettings
from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from headwater.core_log.records.record_codec import decode_batch, iterate_batches
from headwater.pipelines.journal.commits import small_batch
from headwater.pipelines.journal.internal_topics import MEMBERS, SEGMENT_BYTES

HOME = TopicPartition(MEMBERS, 0)
FILE, STATUS = "file", "status"
FORMAT_VERSION = 1
LIMIT = FetchLimit()


class MemberTopic:
    """Read as far as it was last asked. Without Arrow, since the owner of a log stays small."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._offset: int | None = None
        self._is_there = False
        self._versions: dict[tuple[str, str], int] = {}
        self._statuses: dict[str, bytes] = {}

    async def version(
        self, pipeline: str, digest: str, *, is_newest: bool = False, now_ms: int
    ) -> int:
        """Returns a number that orders the versions of a file by when they were run first. With
        `is_newest` this version becomes the newest one also if it was known."""
        await self._read()
        known = {digest: at for (name, digest), at in self._versions.items() if name == pipeline}
        if digest not in known or (is_newest and known[digest] < max(known.values())):
            await self._write([FILE, pipeline, digest], b"{}", now_ms=now_ms)
            await self._read()
        return self._versions[pipeline, digest]

    async def say(self, member: str, status: Mapping[str, Any], *, now_ms: int) -> None:
        """Replaces what this member said before."""
        value = zlib.compress(orjson.dumps({"version": FORMAT_VERSION, **status}, default=str), 1)
        await self._write([STATUS, member], value, now_ms=now_ms)

    async def statuses(self) -> Mapping[str, Mapping[str, Any]]:
        """Returns what each member said last."""
        await self._read()
        found = {}
        for member, said in self._statuses.items():
            with suppress(zlib.error, orjson.JSONDecodeError):
                found[member] = orjson.loads(zlib.decompress(said))
        return found

    async def _write(self, key: list[str], value: bytes, *, now_ms: int) -> None:
        await self._ensure()
        await self._log.append(HOME, small_batch([(orjson.dumps(key), value)], now_ms=now_ms))

    async def _read(self) -> None:
        await self._ensure()
        bounds = (await self._log.bounds([HOME]))[HOME]
        self._offset = max(self._offset or 0, bounds.start)
        while self._offset < bounds.end:
            wanted = {HOME: self._offset}
            for part in await self._log.fetch(wanted, limit=LIMIT, isolation=Isolation.COMMITTED):
                self._take(part.data, self._offset)
                self._offset = part.next_offset

    async def _ensure(self) -> None:
        if not self._is_there:
            await self._log.ensure_topic(member_topic())
            self._is_there = True

    def _take(self, data: "bytes | memoryview", from_offset: int) -> None:
        for batch in iterate_batches(data):
            for record in decode_batch(batch)[1]:
                if record.offset < from_offset or record.key is None:
                    continue
                match _read_key(record.key):
                    case [str(kind), str(pipeline), str(digest)] if kind == FILE:
                        self._versions[pipeline, digest] = record.offset
                    case [str(kind), str(member)] if kind == STATUS and record.value:
                        self._statuses[member] = record.value


def _read_key(key: bytes) -> object:
    """None for what no Headwater has written; it must not keep a run from its tasks."""
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(key)
    return None


def member_topic() -> TopicSettings:
    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    return TopicSettings(name=MEMBERS, partitions=1, config=config)
