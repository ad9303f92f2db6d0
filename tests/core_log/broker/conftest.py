"""A broker for those who only ask it something, with its files in memory."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.broker.broker import Broker
from tests.core_log.broker.in_memory import started
from tests.fakes import MemoryFiles


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    """Its segments last a minute, which is no default."""
    broker = await started(MemoryFiles(), config={"segment.ms": "60000"})
    yield broker
    await broker.close()
