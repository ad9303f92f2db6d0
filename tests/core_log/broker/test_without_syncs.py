"""With `fsync: never` all is as it is otherwise, but for what a power cut takes."""

from pathlib import Path

from headwater.core_log.embedded import EmbeddedLog
from headwater.core_log.foundation.settings import BrokerSettings, TopicSettings
from headwater.core_log.model.log import TopicPartition
from tests.contract.records import batch_of

ORDERS = TopicPartition("orders", 0)


async def test_a_transaction_ends_and_can_be_read(tmp_path: Path) -> None:
    log = await EmbeddedLog.open(BrokerSettings(data=tmp_path, listen="127.0.0.1:0", fsync="never"))
    await log.ensure_topic(TopicSettings(name="orders"))
    writer = await log.writer("w")

    for number in range(2):
        async with writer.transaction() as transaction:
            await transaction.append(ORDERS, batch_of(f"order {number}"))

    assert (await log.bounds([ORDERS]))[ORDERS].stable == 4
    await log.close()
