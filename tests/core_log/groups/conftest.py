"""A transaction coordinator that has started, for those who only ask it something."""

import pytest

from tests.core_log.groups.recorded_coordinator import Broker


@pytest.fixture
async def broker() -> Broker:
    broker = Broker()
    await broker.start()
    return broker
