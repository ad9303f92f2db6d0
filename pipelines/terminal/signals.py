"""Ctrl-C and SIGTERM for commands that wait: the first drains, the second ends at once."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from headwater.pipelines.terminal.exit_codes import Interrupted

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_until_signal(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work`; the first signal cancels it and waits for its `finally`, the second kills."""
    received: list[int] = []

    async def guarded() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None, "asyncio.run runs a task"

        def on_signal(number: int) -> None:
            if received:
                os._exit(128 + number)
            received.append(number)
            task.cancel()

        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal, number)
        return await work

    try:
        result = asyncio.run(guarded())
    except asyncio.CancelledError:
        if not received:
            raise
    if received:
        raise Interrupted(received[0])
    return result
