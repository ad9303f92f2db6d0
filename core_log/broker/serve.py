"""`headwater broker`: one broker in the foreground, until it is told to stop."""

import asyncio
import logging

from headwater.core_log.broker.lifecycle import RunningBroker
from headwater.core_log.foundation.settings import BrokerSettings

logger = logging.getLogger(__name__)


async def serve(settings: BrokerSettings) -> None:
    """Runs until it is cancelled, then drains."""
    running = await RunningBroker.start(settings)
    logger.info("the log listens on %s, its data is in %s", running.endpoint, settings.data)
    try:
        await asyncio.Event().wait()
    finally:
        logger.info("stopping: answering what was asked, then syncing")
        await running.stop()
