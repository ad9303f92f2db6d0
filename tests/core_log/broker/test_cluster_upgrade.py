"""Brokers of an older version are replaced one by one: none is given metadata that it cannot
read."""

from collections.abc import AsyncIterator

import pytest

from headwater.core_log.foundation.errors import ConfigError
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntity,
    QuotaAlteration,
    QuotaOperation,
)
from headwater.core_log.replication.features import FEATURES, SUPPORTED
from headwater.core_log.replication.metadata_records import METADATA_FEATURE
from headwater.core_log.replication.topic_config import MIN_IN_SYNC
from tests.core_log.broker.cluster_in_memory import Cluster

pytestmark = pytest.mark.slow

NODES = (1, 2, 3)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    await cluster.close()


async def set_quota(cluster: Cluster, node_id: int) -> AlterClientQuotasResponse:
    client = await cluster.client_of(node_id)
    quota = QuotaAlteration(
        entity=[AlteredEntity(entity_type="user", entity_name="a")],
        ops=[QuotaOperation(key="producer_byte_rate", value=1.0)],
    )
    answer = await client.ask(AlterClientQuotasRequest(entries=[quota]))
    client.close()
    return answer


async def upgrade(cluster: Cluster, node_id: int) -> None:
    await cluster.stop(node_id)
    await cluster.start(node_id)
    await cluster.until(lambda: everybody_lives(cluster))


def everybody_lives(cluster: Cluster) -> bool:
    return all(each.image.alive == list(NODES) for each in cluster.brokers.values())


async def test_newer_metadata_is_written_when_the_last_older_broker_is_replaced(
    cluster: Cluster,
) -> None:
    for node_id in NODES:
        await cluster.start(node_id, is_older=True)
    await cluster.until(lambda: everybody_lives(cluster))

    for node_id in (1, 2):
        await upgrade(cluster, node_id)
        refused = (await set_quota(cluster, node_id)).entries[0]
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "upgrade all brokers" in str(refused.error_message)
    features = [dict(each.image.features) for each in cluster.brokers.values()]
    assert features == [FEATURES] * 3
    assert not any(each.image.cluster_config for each in cluster.brokers.values())

    await upgrade(cluster, 3)

    brokers = list(cluster.brokers.values())
    await cluster.until(lambda: all(each.image.features == SUPPORTED for each in brokers))
    await cluster.until(lambda: all(MIN_IN_SYNC in each.image.cluster_config for each in brokers))
    assert (await set_quota(cluster, 3)).entries[0].error_code == ErrorCode.NONE


async def test_an_older_broker_is_not_let_in_where_newer_metadata_is_written(
    cluster: Cluster,
) -> None:
    first = await cluster.start(1)
    await cluster.start(2)
    assert first.image.features[METADATA_FEATURE] == SUPPORTED[METADATA_FEATURE]

    with pytest.raises(ConfigError, match="does not read"):
        await cluster.start(3, is_older=True)
