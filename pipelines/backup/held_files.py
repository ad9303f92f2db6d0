"""Asks the process that has a log to hold its files, or holds those of a log at rest."""

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from headwater.core_log.broker.held_log import HeldFile, hold, release
from headwater.core_log.foundation.endpoint import Endpoint
from headwater.core_log.foundation.errors import ConfigError, LogUnavailable

if TYPE_CHECKING:
    from headwater.core_log.broker.broker import Broker

TRIES, PAUSE_S = 20, 0.05


async def hold_files(broker: "Broker") -> list[HeldFile]:
    """Tries again where a file has gone between its listing and its link."""
    for _ in range(TRIES):
        try:
            return hold(broker)
        except FileNotFoundError:
            await asyncio.sleep(PAUSE_S)
    raise LogUnavailable("the files of the log change too fast to be held", hint="try again")


@asynccontextmanager
async def held_files(data: Path) -> AsyncIterator[Sequence[HeldFile]]:
    """The files as of one moment, until the block ends."""
    from headwater.pipelines.terminal.log_place import take_or_find

    found = await take_or_find(data)
    if isinstance(found, Endpoint):
        async with _held_by(found) as held:
            yield held
        return
    broker = found.running.broker
    try:
        yield await hold_files(broker)
    finally:
        await asyncio.to_thread(release, broker.store.files, data)
        await found.close()


@asynccontextmanager
async def _held_by(endpoint: Endpoint) -> AsyncIterator[Sequence[HeldFile]]:
    from headwater.pipelines.running.owner_client import LockHolder

    address = endpoint.http or endpoint.control
    if not address or not endpoint.token:
        who = f"`{endpoint.command}`" if endpoint.command else "a broker without --http"
        raise ConfigError(
            f"{who} has the log and cannot be asked to hold its files",
            hint="run the broker with --http 127.0.0.1:8471, or stop it for the backup",
            process=endpoint.pid,
        )
    owner = LockHolder(address, endpoint.token)
    try:
        yield decode_held(await asyncio.to_thread(owner.ask, "POST", "/backup"))
    finally:
        await asyncio.to_thread(owner.ask, "POST", "/backup/end")


def encode_held(held: Sequence[HeldFile]) -> bytes:
    return orjson.dumps(
        {
            "files": [
                [name, size, None if content is None else base64.b64encode(content).decode()]
                for name, size, content in held
            ]
        }
    )


def decode_held(answer: Mapping[str, Any]) -> list[HeldFile]:
    return [
        HeldFile(name, size, None if content is None else base64.b64decode(content))
        for name, size, content in answer["files"]
    ]
