"""A new connection to a broker: dialled, its versions agreed on, and let in."""

import asyncio

from headwater.core_log.client.connection import ConnectionLost
from headwater.core_log.client.rpc import Dial, Rpc
from headwater.core_log.client.settings import KafkaSettings


async def open_link(host: str, port: int, dial: Dial, settings: KafkaSettings) -> Rpc:
    """Connects, agrees on versions and says who we are, within one bound."""
    try:
        async with asyncio.timeout(settings.connect_wait_ms_max / 1000):
            link = Rpc(await dial(host, port), settings)
            try:
                await link.agree()
                if settings.security.has_user:
                    from headwater.core_log.client.sasl import authenticate

                    await authenticate(link, settings.security)
            except BaseException:
                link.close()
                raise
            return link
    except TimeoutError as error:
        raise ConnectionLost(
            "the broker cannot be reached in time", host=host, port=port
        ) from error
