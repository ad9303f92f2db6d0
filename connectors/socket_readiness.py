"""Waits in the event loop until the server of a stream has sent something."""

import asyncio


async def until_readable(descriptor: int) -> None:
    """The socket is read by the caller, without blocking: it may have its own encryption."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def is_readable() -> None:
        loop.remove_reader(descriptor)
        if not waiting.done():
            waiting.set_result(None)

    loop.add_reader(descriptor, is_readable)
    try:
        await waiting
    finally:
        loop.remove_reader(descriptor)
