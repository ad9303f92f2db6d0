"""The end of a history, once nothing fails any more: everybody goes on, and everything is read."""

import asyncio
from collections.abc import Sequence

from headwater.core_log.model.log import FetchLimit, Isolation, Log, TopicPartition
from tests.simulation.checker import Observed
from tests.simulation.load import Client, RelayClient, records_in

LOOK_S = 0.1


async def settle(clients: Sequence[Client], seen: Observed, *, within_s: float) -> None:
    """Liveness: every client does something within the time."""
    before = {each.name: each.done_count for each in clients}
    end_s = asyncio.get_running_loop().time() + within_s
    while waiting := [each for each in clients if each.done_count <= before[each.name]]:
        if asyncio.get_running_loop().time() > end_s:
            seen.stuck += [each.name for each in waiting]
            return
        await asyncio.sleep(LOOK_S / 2)


async def drain_relay(relay: RelayClient, seen: Observed, *, within_s: float) -> None:
    """Lets the relay copy all that is left. An empty answer does not say that: it may come from a
    leader that does not know yet that another one leads, which bounds never do."""
    end_s = asyncio.get_running_loop().time() + within_s
    while not await relay.has_all():
        if asyncio.get_running_loop().time() > end_s:
            seen.stuck.append(relay.name)
            return
        await relay.step()


async def read_everything(
    log: Log, partitions: Sequence[TopicPartition], seen: Observed, *, within_s: float
) -> None:
    """Reads all that is committed, once no transaction is open."""
    limit = FetchLimit(wait_ms_max=0)
    end_s = asyncio.get_running_loop().time() + within_s
    while True:
        bounds = await log.bounds(partitions)
        open_at = {str(at): each for at, each in bounds.items() if each.stable < each.end}
        if not open_at:
            break
        if asyncio.get_running_loop().time() > end_s:
            seen.stuck += [f"open transaction in {at}" for at in open_at]
            break
        await asyncio.sleep(LOOK_S)
    for at in partitions:
        offset, found = bounds[at].start, seen.final.setdefault(at, [])
        while offset < bounds[at].stable:
            for each in await log.fetch({at: offset}, limit=limit, isolation=Isolation.COMMITTED):
                found += records_in(each.data, from_offset=offset)
                offset = each.next_offset
