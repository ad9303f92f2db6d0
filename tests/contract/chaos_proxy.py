"""A proxy between client and broker that cuts connections after any number of bytes."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

from headwater.core_log.links.connection import Channel, connect
from headwater.core_log.links.rpc import Dial


class ChaosProxy:
    """Every connection lives for a random number of bytes, counted in both directions."""

    def __init__(self, endpoint: str, random: Random, *, bytes_mean: int) -> None:
        self._host, port = endpoint.rsplit(":", 1)
        self._port, self._random, self._bytes_mean = int(port), random, bytes_mean
        self._serving: set[asyncio.Task[None]] = set()
        self.cut = 0
        self.address = ("", 0)

    def dial(self) -> Dial:
        """Whatever broker is asked for, the way to it leads through here."""

        async def dial(host: str, port: int) -> Channel:
            return await connect(*self.address, response_bytes_max=1 << 30)

        return dial

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._serving.add(task)
        there, back = await asyncio.open_connection(self._host, self._port)
        left = [round(self._random.expovariate(1 / self._bytes_mean))]
        pumps = [
            asyncio.ensure_future(self._pump(reader, back, left)),
            asyncio.ensure_future(self._pump(there, writer, left)),
        ]
        with suppress(asyncio.CancelledError):  # it is stopped
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for each in (writer, back):
            each.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._serving.discard(task)

    async def stop(self) -> None:
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)  # in which the aborted transports let go of their sockets

    async def _pump(self, source: StreamReader, sink: StreamWriter, left: list[int]) -> None:
        while data := await source.read(1 << 16):
            part = data[: max(left[0], 0)]
            left[0] -= len(data)
            if left[0] < 0:
                self.cut += 1
                sink.write(part)
                with suppress(ConnectionError):
                    await sink.drain()
                return
            sink.write(data)
            await sink.drain()


@asynccontextmanager
async def chaos_before(
    endpoint: str, random: Random, *, bytes_mean: int
) -> AsyncIterator[ChaosProxy]:
    proxy = ChaosProxy(endpoint, random, bytes_mean=bytes_mean)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.address = server.sockets[0].getsockname()[:2]
    try:
        yield proxy
    finally:
        server.close()
        await server.wait_closed()
        await proxy.stop()
