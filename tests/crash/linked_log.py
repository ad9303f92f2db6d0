"""Three brokers in network namespaces in place of the one broker of a capture; their links go
silent at random, and heal."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, TypeVar

from headwater.core_log.model.log import TopicPartition
from tests.cluster.links import Links
from tests.cluster.nodes import COUNT, HeadwaterNodes
from tests.cluster.scenario import GROUP_KIND
from tests.cluster.view import ClusterView

LOOK_S = 0.1
Answer = TypeVar("Answer")


class LinkedLog:
    """The proxies of its links run on an event loop of their own."""

    def __init__(self, directory: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._links = Links(range(1, COUNT + 1))
        self._nodes = HeadwaterNodes(directory, self._links)
        self._view = ClusterView(self._nodes.addresses)

    @property
    def addresses(self) -> Sequence[str]:
        return self._nodes.bootstrap

    def start(self) -> None:
        """Returns once three brokers vote."""
        self._await(self._connect())
        for node in self._nodes.addresses:
            self._nodes.start(node)
        self._until_sound()

    def end(self) -> None:
        self._nodes.end()
        self._await(self._links.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, random: Random, *, topic: str, group: str) -> str:
        """Silences some links of a node that leads something; says which."""
        awake = self._nodes.awake
        asked: dict[str, Callable[[], Coroutine[Any, Any, list[int]]]] = {
            "the leader": lambda: self._view.leader(TopicPartition(topic, 0), awake),
            "the controller": lambda: self._view.controller(awake),
            "the group's coordinator": lambda: self._view.coordinator(group, GROUP_KIND, awake),
        }
        who = random.choice(list(asked))
        what = random.choice(("isolated", "without peers", "mute", "deaf"))
        [node] = self._await(asked[who]()) or [random.choice(awake)]
        self._links.cut |= self._links.ways(
            [node],
            to=what != "mute",
            back=what != "deaf",
            clients=what != "without peers",
        )
        return f"{who} is {what}"

    def heal(self) -> None:
        """Returns once every replica is in sync again."""
        self._await(self._links.heal())
        self._until_sound()

    async def _connect(self) -> None:
        self._links.connect({node: self._nodes.ports(node) for node in self._nodes.addresses})

    def _until_sound(self) -> None:
        self._await(self._sound())

    async def _sound(self) -> None:
        awake = self._nodes.awake
        while await self._view.out_of_sync(awake, COUNT) or await self._view.without_vote(awake):
            self._nodes.check()
            await asyncio.sleep(LOOK_S)

    def _await(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
