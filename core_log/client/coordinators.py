"""Finds the coordinator of a group or a transactional writer, and repeats requests to it."""

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from headwater.core_log.client.cluster import Cluster
from headwater.core_log.client.retry_policy import STALE_COORDINATOR, check
from headwater.core_log.links.connection import ConnectionLost
from headwater.core_log.links.node import Node
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.message import Request
from headwater.core_log.protocol.messages.find_coordinator import FindCoordinatorRequest

A = TypeVar("A")
DOUBTED_FROM = 10
"""Attempts after which others are asked about the coordinator: one that is cut off from them goes
on as before, and ends no transaction."""
FIND_ONE = 3  # the last version of FindCoordinator for one key at a time


class Coordinates(IntEnum):
    """The kinds of keys that have coordinators."""

    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    """A cache of coordinators; a broker that is none any more is looked up again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._found: dict[tuple[Coordinates, str], int] = {}

    async def ask(
        self,
        kind: Coordinates,
        key: str,
        request: Request[A],
        *,
        codes: Callable[[A], list[int]],
        version_max: int | None = None,
        for_ms: int | None = None,
        wait_ms: int = 0,
    ) -> A:
        """Repeats the request while a code that `codes` finds in the answer requires it. `wait_ms`
        is the longest time that the broker may wait before it answers, on a connection of its own.
        """
        attempts = 0

        async def attempt() -> A:
            nonlocal attempts
            attempts += 1
            if attempts % DOUBTED_FROM == 0:
                await self._doubt(kind, key)
            node = await self._coordinator(kind, key)
            try:
                if wait_ms:
                    said = await node.poll(request, wait_ms=wait_ms)
                else:
                    said = await node.ask(request, version_max=version_max)
            except ConnectionLost:
                self._forget(kind, key)
                raise
            for code in codes(said):
                if ErrorCode(code) in STALE_COORDINATOR:
                    self._forget(kind, key)
                check(code, **{kind.name.lower(): key})
            return said

        return await self._cluster.persist(attempt, for_ms=for_ms)

    async def _doubt(self, kind: Coordinates, key: str) -> None:
        node = self._cluster.node(self._found.get((kind, key), -1))
        if node is not None and await self._cluster.leave_if_gone(node):
            self._forget(kind, key)

    def _forget(self, kind: Coordinates, key: str) -> None:
        self._found.pop((kind, key), None)

    async def _coordinator(self, kind: Coordinates, key: str) -> Node:
        node = self._cluster.node(self._found.get((kind, key), -1))
        if node is not None:
            return node
        found = await self._cluster.ask_any(
            FindCoordinatorRequest(key=key, key_type=kind), version_max=FIND_ONE
        )
        check(found.error_code, message=found.error_message)
        self._found[kind, key] = found.node_id
        return self._cluster.meet(found.node_id, found.host, found.port)
