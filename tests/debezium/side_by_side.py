"""Lets Debezium and our source live through one history of one database, side by side."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from tests.databases import Guest
from tests.debezium import debezium_capture, headwater_capture, histories
from tests.debezium.events import Told

READINGS = {"strings": "strings"}
"""Modes that our source reads in a form of their own; the others share one reading."""
SHARED = "plain"
ENDING_S_MAX = 120


def prepare(guest: Guest) -> None:
    guest.execute(
        *histories.setup(),
        f"CREATE PUBLICATION {debezium_capture.PUBLICATION} FOR ALL TABLES"
        " WITH (publish_via_partition_root = true)",
    )
    guest.publish()


async def both(guest: Guest, directory: Path) -> tuple[dict[str, dict[str, Told]], dict[str, Path]]:
    """What we said in each mode, and the files of what Debezium said."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        readings = await _readings(stack, guest)

        def history() -> None:
            asyncio.run_coroutine_threadsafe(_streaming(readings), loop).result()
            guest.execute(*histories.statements())

        files = await asyncio.to_thread(
            debezium_capture.capture, guest.owner, directory, debezium_capture.MODES, history
        )
        return await _told(readings), files


async def alone(guest: Guest) -> dict[str, dict[str, Told]]:
    """What we say of the same history without Debezium."""
    async with AsyncExitStack() as stack:
        readings = await _readings(stack, guest)
        await _streaming(readings)
        await guest.run(*histories.statements())
        return await _told(readings)


async def _readings(stack: AsyncExitStack, guest: Guest) -> Mapping[str, headwater_capture.Reading]:
    modes: Sequence[str] = (SHARED, *READINGS)
    return {
        mode: await stack.enter_async_context(headwater_capture.reading(guest.url, mode))
        for mode in modes
    }


async def _streaming(readings: Mapping[str, headwater_capture.Reading]) -> None:
    for each in readings.values():
        await each.streaming()


async def _told(readings: Mapping[str, headwater_capture.Reading]) -> dict[str, dict[str, Told]]:
    for each in readings.values():
        await asyncio.wait_for(each.ended, ENDING_S_MAX)
    return {
        mode: headwater_capture.told(readings[READINGS.get(mode, SHARED)].batches, mode)
        for mode in headwater_capture.WIRES
    }
