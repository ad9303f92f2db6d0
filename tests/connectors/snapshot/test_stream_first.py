"""Rows that are read beside the stream never hold it up for more than one chunk."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from headwater.connectors.mysql.follower import BinlogFollower
from headwater.connectors.mysql.server.server_identity import FilePosition
from headwater.connectors.postgres.follower import StreamFollower
from headwater.connectors.stream_follower import SourceHeartbeat
from headwater.core_log.foundation.clock import SystemClock
from headwater.core_log.model.changes import ChangeBatch, Operation, TableChanges
from headwater.core_log.model.table_schema import Column, TableId, TableSchema

SCHEMA = TableSchema(TableId("shop", "large"), (Column("id", pa.int64()),), ("id",))
CHUNKS = 6


def chunk(number: int, positions: dict[str, str] | None = None) -> ChangeBatch:
    rows = pa.RecordBatch.from_pydict({"id": [number]}, schema=SCHEMA.arrow)
    changes = TableChanges(SCHEMA, rows, pa.array([Operation.READ], pa.uint8()), {})
    return ChangeBatch((changes,), {"snapshot": str(number)} if positions is None else positions)


class Chunks:
    """Chunks that can all be emitted at once."""

    def __init__(self, batches: list[ChangeBatch]) -> None:
        self._left, self.has_work, self.notes = batches, True, dict[str, str]()
        self.awaits = None

    async def ready(self, _: object) -> ChangeBatch | None:
        return self._left.pop(0) if self._left else None

    async def wait_for_rows(self) -> None:
        await asyncio.Event().wait()

    wait_for_work = wait_for_rows


async def admit(schema: TableSchema, *, is_next: bool = True) -> bool:
    return True


def of_postgres(chunks: Chunks) -> StreamFollower:
    captures = SimpleNamespace(admits=admit, positions_of_snapshot=lambda parts, _: parts)
    given: Any = SimpleNamespace
    return StreamFollower(
        given(), given(captures=captures), given(**_asked(chunks), in_place=given()),
        given(look_soon=None), given(forms=given()),
        beat=SourceHeartbeat("shop", SystemClock(), every_ms=0), server="s", start=0,
        clock=SystemClock(), end=None, awaits_paused=False,
    )  # fmt: skip


def of_mysql(chunks: Chunks, coming: "asyncio.Future[Any] | None") -> BinlogFollower:
    given: Any = SimpleNamespace
    position = given(text="", place=FilePosition("", 0))
    reader = given(position=position, is_open=False, is_at_stop=False)
    follower = BinlogFollower(
        given(), given(), reader, given(), given(**_asked(chunks)), given(),
        reading=asyncio.Lock(), end=None,
    )  # fmt: skip
    follower._readable = coming
    return follower


def _asked(chunks: Chunks) -> dict[str, Any]:
    names = ("has_work", "notes", "awaits", "ready", "wait_for_rows", "wait_for_work")
    return {name: getattr(chunks, name) for name in names}


async def emitted(batches: AsyncGenerator[ChangeBatch, None], *, until: int = CHUNKS) -> int:
    """How many chunks come before the stream's turn, or before it would be waited for."""
    count = 0
    async with aclosing(batches) as given:
        async for _ in given:
            count += 1
            if count == until:
                break
    return count


async def test_one_chunk_is_emitted_before_changes_that_have_come() -> None:
    coming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    coming.set_result([])
    beating: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    chunks = [chunk(number) for number in range(CHUNKS)]
    of_both = [
        await emitted(of_postgres(Chunks([*chunks]))._beside(coming, beating)),
        await emitted(of_mysql(Chunks([*chunks]), coming)._beside()),
    ]

    assert of_both == [1, 1]


async def test_all_chunks_are_emitted_while_the_stream_is_quiet() -> None:
    coming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    beating: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    chunks = [chunk(number) for number in range(CHUNKS)]
    of_both = [
        await emitted(of_postgres(Chunks([*chunks]))._beside(coming, beating)),
        await emitted(of_mysql(Chunks([*chunks]), coming)._beside()),
    ]

    assert of_both == [CHUNKS, CHUNKS]


async def test_no_change_comes_into_the_transaction_of_a_table_that_is_emitted_as_a_whole() -> None:
    """Its parts have no position but the last."""
    coming: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    coming.set_result([])
    beating: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    parts = [chunk(number, {}) for number in range(CHUNKS - 1)] + [chunk(CHUNKS), chunk(CHUNKS + 1)]

    count = await emitted(of_postgres(Chunks(parts))._beside(coming, beating), until=CHUNKS + 1)

    assert count == CHUNKS
