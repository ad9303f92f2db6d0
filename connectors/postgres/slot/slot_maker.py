"""Makes the slot, in place of one of its name, and says meanwhile what keeps it waiting."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from headwater.connectors.postgres.server.connection import PgConnection
from headwater.connectors.postgres.slot import replication_slot
from headwater.connectors.postgres.slot.replication_slot import CreatedSlot
from headwater.core_log.client.gather import let_go
from headwater.core_log.foundation.diagnostic import Diagnostic

WAITING_SECONDS = 1.0
"""Time after which it is looked at who keeps it waiting."""


@dataclass(frozen=True, slots=True)
class SlotMaker:
    """Its replication connection stays idle afterwards, for the sake of the slot's snapshot."""

    line: PgConnection
    """A replication connection."""
    connection: PgConnection
    name: str
    say: Callable[[Diagnostic | None], None]
    has_failover: bool
    exports: bool
    """Whether the slot has a snapshot to read rows under."""

    async def make(self) -> CreatedSlot:
        await replication_slot.drop(self.connection, self.name)
        making = asyncio.ensure_future(
            replication_slot.create(
                self.line, self.name, has_failover=self.has_failover, exports=self.exports
            )
        )
        try:
            while not (await asyncio.wait([making], timeout=WAITING_SECONDS))[0]:
                pid = self.line.info.backend_pid
                self.say(await replication_slot.waited_for(self.connection, pid))
            return making.result()
        finally:
            self.say(None)
            await let_go(making)
