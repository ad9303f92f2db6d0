"""Requests to other brokers that carry the parts of many callers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from headwater.core_log.foundation.errors import HeadwaterError, LogUnavailable
from headwater.core_log.links.connection import ConnectionLost

Part = TypeVar("Part")
Answer = TypeVar("Answer")


class _Asked(NamedTuple, Generic[Part, Answer]):
    part: Part
    answer: "asyncio.Future[Answer]"


class RequestBatches(Generic[Part, Answer]):
    """Sends one request at a time to a broker; what is asked meanwhile goes with the next one."""

    def __init__(self, send: Callable[[int, Sequence[Part]], Awaitable[Sequence[Answer]]]) -> None:
        """`send` asks a broker, and returns an answer for each part in their order."""
        self._send = send
        self._waiting: dict[int, list[_Asked[Part, Answer]]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}

    async def ask(self, node_id: int, part: Part) -> Answer:
        """Raises `LogUnavailable` if the broker does not answer; nobody knows then whether it has
        heard."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked = _Asked(part, answer)
        self._waiting.setdefault(node_id, []).append(asked)
        if node_id not in self._senders:
            self._senders[node_id] = asyncio.ensure_future(self._send_all(node_id))
        return await answer

    async def _send_all(self, node_id: int) -> None:
        batch: list[_Asked[Part, Answer]] = []
        try:
            while batch := self._waiting.pop(node_id, []):
                try:
                    answers = await self._send(node_id, [each.part for each in batch])
                except (ConnectionLost, HeadwaterError) as error:
                    unheard = LogUnavailable("a broker does not answer", reason=str(error))
                    for each in batch:
                        if not each.answer.done():
                            each.answer.set_exception(unheard)
                    continue
                for each, answer in zip(batch, answers, strict=True):
                    if not each.answer.done():
                        each.answer.set_result(answer)
        finally:
            del self._senders[node_id]
            for each in [*batch, *self._waiting.pop(node_id, [])]:
                each.answer.cancel()

    async def close(self) -> None:
        """Ends requests that are under way; their callers are cancelled."""
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        if senders:
            await asyncio.wait(senders)
