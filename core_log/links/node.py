"""One broker of the cluster: a connection for requests, and others for long polls."""

import asyncio
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from headwater.core_log.foundation.errors import LogUnavailable
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.rpc import (
    Dial,
    LinkSettings,
    NegotiatedVersions,
    OnOverdue,
    Rpc,
)
from headwater.core_log.protocol.message import Request

A = TypeVar("A")


class Node:
    """A broker. It connects on first use, and again after a loss.

    Apache Kafka serves one request per connection at a time, so a long poll would block every
    request after it. Each running poll therefore has its own connection, up to a limit.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        dial: Dial,
        settings: LinkSettings,
        on_overdue: "Callable[[Node, Future[memoryview]], None] | None" = None,
    ) -> None:
        """`on_overdue` is called with an answer of this broker that is late."""
        self.host, self.port = host, port
        self._dial, self._settings = dial, settings
        self._on_overdue = None if on_overdue is None else partial(on_overdue, self)
        self._opening, self._opening_poll = asyncio.Lock(), asyncio.Lock()
        self._requests: Rpc | None = None
        self._polls: list[Rpc] = []
        self._is_closed = self._has_moved = False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        return self._requests is not None and self._requests.is_open

    async def ask(
        self, request: Request[A], *, version_max: int | None = None, wait_ms: int = 0
    ) -> A:
        link = await self.link()
        return await link.ask(request, version_max=version_max, wait_ms=wait_ms)

    async def tell(self, request: Request[Any], *, version_max: int | None = None) -> None:
        link = await self.link()
        await link.go_on()
        link.tell(request, version_max=version_max)

    async def poll(self, request: Request[A], *, wait_ms: int) -> A:
        link = await self._link_for_poll()
        return await link.ask(request, wait_ms=wait_ms)

    async def agreement(self) -> NegotiatedVersions:
        return (await self.link()).agreement

    async def link(self) -> Rpc:
        if self._requests is not None and self._requests.is_open:
            return self._requests
        async with self._opening:
            if self._requests is None or not self._requests.is_open:
                self._requests = await self._open()
            return self._requests

    async def _link_for_poll(self) -> Rpc:
        async with self._opening_poll:
            self._polls = [link for link in self._polls if link.is_open]
            quietest = min(self._polls, key=lambda link: link.waiting, default=None)
            if quietest is not None and (
                quietest.waiting == 0 or len(self._polls) >= self._settings.fetch_connections_max
            ):
                return quietest
            link = await self._open()
            self._polls.append(link)
            return link

    async def _open(self) -> Rpc:
        self._check_open()
        link = await open_link(self.host, self.port, self._dial, self._settings, self._on_overdue)
        try:
            self._check_open()  # it may have been closed meanwhile
        except (LogUnavailable, ConnectionLost):
            link.close()
            raise
        return link

    def _check_open(self) -> None:
        if self._has_moved:
            raise ConnectionLost("the broker has another address now", was=self.address)
        if self._is_closed:
            raise LogUnavailable("the log was closed", hint="open it anew")

    def close(self) -> None:
        self._is_closed = True
        self.disconnect()

    def leave(self) -> None:
        """The broker has come back elsewhere: what is under way here is lost, and asked again."""
        self._has_moved = True
        self.disconnect()

    def disconnect(self) -> None:
        """Ends the connections, and with them the wait for answers; the next request connects
        again."""
        for link in (*self._polls, *([self._requests] if self._requests else [])):
            link.close()


async def open_link(
    host: str,
    port: int,
    dial: Dial,
    settings: LinkSettings,
    on_overdue: OnOverdue | None = None,
) -> Rpc:
    """Connects, agrees on versions and authenticates, within one time limit."""
    try:
        async with asyncio.timeout(settings.connect_wait_ms_max / 1000):
            link = Rpc(await dial(host, port), settings, on_overdue)
            try:
                await link.agree()
                if settings.security.has_user and not link.is_in_process:
                    from headwater.core_log.links.sasl import authenticate

                    renew = partial(authenticate, security=settings.security)
                    length_ms = await renew(link)
                    await link.agree()  # some APIs are shown to those only who may ask for them
                    link.begin_session(length_ms, renew)
            except BaseException:
                link.close()
                raise
            return link
    except TimeoutError as error:
        raise ConnectionLost(
            "the broker cannot be reached in time", host=host, port=port
        ) from error
