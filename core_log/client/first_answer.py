"""Which of several brokers answers first, and what stands in the way of each where none does."""

import asyncio
from collections import deque
from collections.abc import Sequence

from headwater.core_log.client.connection import ConnectionLost
from headwater.core_log.client.node import Node
from headwater.core_log.client.rpc import Rpc

HEAD_START_S = 0.25
"""How long an address is waited for alone before the next is tried beside it."""
SHOWN_MAX = 5


class NobodyAnswered(Exception):
    """Its text is the addresses, each with what went wrong there."""

    def __init__(self, reasons: dict[str, str]) -> None:
        shown = [f"{address} ({why})" for address, why in list(reasons.items())[:SHOWN_MAX]]
        more = len(reasons) - len(shown)
        super().__init__(", ".join(shown) + (f" and {more} more" if more else ""))


async def first_to_answer(nodes: Sequence[Node], *, within_s: float) -> Node:
    """A node that is connected now: an address that swallows packets holds up no other one."""
    distinct: dict[str, Node] = {}
    for node in nodes:
        distinct.setdefault(node.address, node)
    waiting = deque(distinct.values())
    reasons = dict.fromkeys(distinct, "no answer in time")
    under_way: dict[asyncio.Task[Rpc], Node] = {}
    try:
        async with asyncio.timeout(within_s):
            while waiting or under_way:
                if waiting:
                    node = waiting.popleft()
                    under_way[asyncio.create_task(node.link())] = node
                done, _ = await asyncio.wait(
                    under_way,
                    timeout=HEAD_START_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    node = under_way.pop(task)
                    try:
                        task.result()
                        return node
                    except ConnectionLost as lost:
                        reasons[node.address] = lost.reason
    except TimeoutError:
        pass
    finally:
        for each in under_way:
            each.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    raise NobodyAnswered(reasons)
