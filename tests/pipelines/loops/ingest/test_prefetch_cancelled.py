"""Who waits for the next batch ends when told to, whenever that is."""

import asyncio

import pytest

from headwater.core_log.model.changes import ChangeBatch
from headwater.pipelines.loops.ingest.prefetch import Prefetch


@pytest.mark.parametrize("turns", range(6))
async def test_a_batch_that_comes_at_the_same_moment_does_not_swallow_the_end(turns: int) -> None:
    ahead = Prefetch()

    async def follow() -> None:
        while True:
            await ahead.next_within(60_000)

    following = asyncio.ensure_future(follow())
    await asyncio.sleep(0.01)
    ahead._queue.put_nowait(ChangeBatch((), {}))
    for _ in range(turns):
        await asyncio.sleep(0)
    following.cancel()
    for _ in range(20):
        await asyncio.sleep(0)
    is_over = following.done()
    following.cancel()
    await asyncio.wait([following])

    assert is_over
