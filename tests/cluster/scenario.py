"""Scenarios as text: a line is a step, and every cluster is played the same ones."""

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from subprocess import PIPE
from typing import Any

from headwater.core_log.model.log import TopicPartition
from tests.cluster.links import Links
from tests.cluster.nodes import COUNT, PROJECT, Nodes
from tests.cluster.stored_logs import differences
from tests.cluster.view import ClusterView
from tests.cluster.workload import PROGRESS_S_MAX, Workload
from tests.simulation.checker import problems_of

LOOK_S = 0.1
TIMES = " times:"
OF_NODES = {"kill", "stop", "start", "pause", "resume", "wipe", "upgrade", "downgrade"}
"""What is done to the process of a node, or to its disk."""
OF_LINKS = {"isolate", "deafen", "mute", "separate"}
"""What is done to the links of a node."""
WHOM = (
    r"(it|them|all|others|controller|controller and another|node \d+"
    r"|(leader|follower|followers) of \S+-\d+|(group )?coordinator of \S+)"
)
ONE_STEP = re.compile(
    r"nodes \d+|work \d+|in sync|led|refused|heal links|all vote|status|move \S+ to all"
    rf"|({'|'.join(sorted(OF_NODES | OF_LINKS))}) {WHOM}"
)
GROUP_KIND, TRANSACTION_KIND = 0, 1


@dataclass(frozen=True)
class Step:
    """`count` repetitions of `body`, or one line."""

    line: str
    body: Sequence["Step"] = ()
    count: int = 1


def parse(text: str) -> list[Step]:
    """Lines that begin with `#` and empty ones are for readers; `N times:` repeats the indented
    lines below it."""
    lines = [each for each in text.splitlines() if each.strip() and not each.startswith("#")]
    steps = list[Step]()
    while lines:
        line = lines.pop(0)
        assert not line.startswith(" "), f"a step is indented without a reason: {line!r}"
        if not line.endswith(TIMES):
            assert ONE_STEP.fullmatch(line), f"no such step: {line!r}"
            steps.append(Step(line))
            continue
        count = line.removesuffix(TIMES)
        assert count.isdecimal(), f"no number of times: {line!r}"
        body = []
        while lines and lines[0].startswith("  "):
            body.append(lines.pop(0)[2:])
        steps.append(Step(line, parse("\n".join(body)), int(count)))
    return steps


def node_count(steps: Sequence[Step]) -> int:
    """Three, if the first line does not say another number."""
    name, _, count = steps[0].line.partition(" ")
    return int(count) if name == "nodes" else COUNT


class Play:
    """One scenario on one cluster."""

    def __init__(self, nodes: Nodes, random: Random, say: Callable[[str], None] = print) -> None:
        self._nodes, self._say = nodes, say
        self._view, self._random = ClusterView(nodes.addresses), random
        self._votes = COUNT
        """Voters that there are; a cluster has no more by itself."""
        self._workload = Workload(nodes.bootstrap, random)
        self._it: Sequence[int] = []
        """The nodes that the last step was about."""

    async def play(self, steps: Iterable[Step]) -> Sequence[str]:
        """Returns everything that contradicts the promises of a log."""
        return await self.play_with(lambda: self._all(steps))

    async def play_with(self, accidents: Callable[[], Awaitable[None]]) -> Sequence[str]:
        """The same with accidents that are no text."""
        if self._nodes.links is not None:
            self._links.connect({node: self._nodes.ports(node) for node in self._nodes.addresses})
        for node in self._nodes.addresses:
            self._nodes.start(node)
        await self._led()
        try:
            await self._workload.begin()
            await self.wait_in_sync()
            await accidents()
            self._nodes.heal()
            if self._nodes.links is not None:
                await self._links.heal()
            await self.wait_in_sync()
            await self._workload.finish()
            await self.wait_in_sync()
        except BaseException:
            self._workload.abandon()
            raise
        self._nodes.stop_all()
        data = {node: self._nodes.logs(node) for node in self._nodes.addresses}
        return [*problems_of(self._workload.seen), *differences(data, self._workload.ends)]

    async def work(self, steps: int) -> None:
        """Returns once every writer has succeeded so many times more."""
        await self._workload.work(steps)

    async def take(self, step: str) -> None:
        """Returns once this step is taken."""
        await self._one(step)

    async def find(self, whom: str) -> int:
        return (await self._find(whom))[0]

    async def _all(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if step.body:
                for _ in range(step.count):
                    await self._all(step.body)
                continue
            self._say(step.line)
            self._nodes.check()
            await self._one(step.line)

    async def _one(self, line: str) -> None:
        match line.split():
            case ["work", count]:
                await self._workload.work(int(count))
            case ["all", "vote"]:
                self._votes = len(self._nodes.addresses)
                await self._until(lambda: self._view.give_votes(self._nodes.awake))
            case ["move", topic, "to", "all"]:
                nodes = ",".join(map(str, self._nodes.addresses))
                moved = await self._headwater("cluster", "move", topic, "--to", nodes)
                assert moved["ok"], moved
            case [verb, *whom] if verb in OF_NODES:
                self._it = await self._find(" ".join(whom))
                self._say(f"    node {' and '.join(map(str, self._it))}")
                for node in self._it:
                    await asyncio.to_thread(getattr(self._nodes, verb), node)
            case [verb, *whom] if verb in OF_LINKS:
                await self._cut(verb, " ".join(whom))
            case ["heal", "links"]:
                await self._links.heal()
            case _:
                await self._hold(line)

    async def _hold(self, line: str) -> None:
        """Returns once it is as the line says."""
        match line.split():
            case ["nodes", count]:
                assert len(self._nodes.addresses) == int(count), "the first line says how many"
            case ["in", "sync"]:
                await self.wait_in_sync()
            case ["led"]:
                await self._led()
            case ["status"]:
                await self._until(self._wrong_status)
            case ["refused"]:
                assert await self._workload.is_refused(), "a write was acknowledged"
            case _:
                raise AssertionError(f"no such step: {line!r}")

    async def _cut(self, verb: str, whom: str) -> None:
        """Links stay connected, and carry nothing."""
        self._it = await self._find(whom)
        self._say(f"    node {' and '.join(map(str, self._it))}")
        self._links.cut |= self._links.ways(
            self._it,
            to=verb != "mute",
            back=verb != "deafen",
            clients=verb != "separate",
        )

    @property
    def _links(self) -> Links:
        assert self._nodes.links is not None, "only nodes in namespaces have links"
        return self._nodes.links

    async def _find(self, whom: str) -> Sequence[int]:
        """Asks again until somebody knows."""
        end_s = asyncio.get_running_loop().time() + PROGRESS_S_MAX
        while not (found := await self._found(whom)):
            assert asyncio.get_running_loop().time() < end_s, f"nobody is the {whom}"
            await asyncio.sleep(LOOK_S)
        return found

    async def _found(self, whom: str) -> Sequence[int]:
        match whom.split():
            case ["it" | "them"]:
                return self._it
            case ["all"]:
                return list(self._nodes.addresses)
            case ["others"]:
                return [each for each in self._nodes.addresses if each not in self._it]
            case ["controller", "and", "another"]:
                first = await self._view.controller(self._nodes.awake)
                others = [each for each in self._nodes.awake if each not in first]
                return [*first, self._random.choice(others)] if first else []
            case ["node", number]:
                return [int(number)]
        return await self._told(whom)

    async def _told(self, whom: str) -> Sequence[int]:
        """By those nodes that can be asked."""
        awake = self._nodes.awake
        match whom.split():
            case ["leader", "of", at]:
                return await self._view.leader(partition_of(at), awake)
            case ["follower", "of", at]:
                return (await self._view.followers(partition_of(at), awake))[:1]
            case ["followers", "of", at]:
                return await self._view.followers(partition_of(at), awake)
            case ["controller"]:
                return await self._view.controller(awake)
            case ["group", "coordinator", "of", name]:
                return await self._view.coordinator(name, GROUP_KIND, awake)
            case ["coordinator", "of", name]:
                return await self._view.coordinator(name, TRANSACTION_KIND, awake)
        raise AssertionError(f"nobody is called so: {whom!r}")

    async def wait_in_sync(self) -> None:
        await self._until(lambda: self._problems(len(self._nodes.addresses)))

    async def _led(self) -> None:
        await self._until(lambda: self._problems(1))

    async def _until(self, look: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Waits until there are no problems."""
        end_s = asyncio.get_running_loop().time() + PROGRESS_S_MAX
        while problems := await look():
            self._nodes.check()
            assert asyncio.get_running_loop().time() < end_s, problems
            await asyncio.sleep(LOOK_S)

    async def _problems(self, replicas: int) -> Sequence[str]:
        """Whoever is in sync everywhere may still have no vote: with it another one may die."""
        awake = self._nodes.awake
        problems = await self._view.out_of_sync(awake, replicas)
        if problems or replicas == 1:
            return problems
        return await self._view.without_vote(awake, max(0, replicas - self._votes))

    async def _wrong_status(self) -> Sequence[str]:
        """Everybody is to be named as a voter, and as away who is."""
        told = await self._headwater("cluster", "status")
        if told["data"] is None or len(told["data"]["nodes"]) != len(self._nodes.addresses):
            return [str(told)]
        awake = self._nodes.awake
        return [
            f"node {each['node']} is {each['vote']} and {each['address']}"
            for each in told["data"]["nodes"]
            if each["vote"] not in ("leader", "voter")
            or (each["address"] == "away") is (each["node"] in awake)
        ]

    async def _headwater(self, *words: str) -> dict[str, Any]:
        """Returns the answer of a command."""
        program = [sys.executable, "-m", "headwater.pipelines.cli", *words, "--json"]
        where = ["--bootstrap", ",".join(self._nodes.bootstrap)]
        process = await asyncio.create_subprocess_exec(*program, *where, cwd=PROJECT, stdout=PIPE)
        said, _ = await process.communicate()
        answer: dict[str, Any] = json.loads(said)
        return answer


def partition_of(text: str) -> TopicPartition:
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def scenarios(kind: str) -> Sequence[Path]:
    """Of processes, or of links."""
    return sorted((Path(__file__).parent / "scenarios" / kind).glob("*.txt"))
