"""ACLs, users and quotas hold on every broker of a cluster, whoever was told, and outlive kills."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headwater.core_log.broker.broker import Broker
from headwater.core_log.client.settings import KafkaSettings
from headwater.core_log.embedded import InProcessChannel
from headwater.core_log.links.rpc import Rpc
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from headwater.core_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.core_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.core_log.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.core_log.protocol.messages.metadata import MetadataRequest
from headwater.core_log.replication import metadata_log
from headwater.core_log.security.acls import AclOperation, ResourceType
from headwater.core_log.security.principal import CLUSTER, Principal
from headwater.core_log.security.quotas import QuotaKey
from tests.core_log.broker.cluster_in_memory import WAIT_S, Cluster
from tests.core_log.broker.test_client_quotas import quota
from tests.core_log.broker.test_cluster import grow, vote
from tests.fakes import MemoryFiles

pytestmark = pytest.mark.slow

ALICE = Principal("alice")
SECURITY = {"sasl": ["SCRAM-SHA-512"]}
Rules = tuple[set[str], set[str], dict[str, float]]
"""The topics that alice may create, the users, and alice's quotas."""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three brokers that vote and ask clients who they are."""
    cluster = Cluster()
    cluster.principal = CLUSTER
    for node_id in (1, 2, 3):
        await cluster.start(node_id, security=SECURITY)
    await cluster.until(lambda: all(vote(each) == [1, 2, 3] for each in cluster.brokers.values()))
    yield cluster
    await cluster.close()


def rules_of(broker: Broker) -> Rules:
    """Returns the rules as this broker applies them."""
    assert broker.authorizer is not None
    create, topic = AclOperation.CREATE, ResourceType.TOPIC
    may = broker.authorizer.allows
    limits = {
        key: broker.quotas.limit_of(key, "alice", "app")
        for key in (QuotaKey.PRODUCED, QuotaKey.MUTATIONS)
    }
    return (
        {each for each in ("a", "b") if may(ALICE, "127.0.0.1", create, topic, each)},
        {user for user, _ in broker.image.scram},
        {str(key): limit for key, limit in limits.items() if limit is not None},
    )


async def tell(cluster: Cluster, node_id: int, *requests: Any) -> None:
    """Asks one broker, by the right of a broker."""
    client = await cluster.client_of(node_id)
    for each in requests:
        answer = await client.ask(each)
        for result in (
            *getattr(answer, "results", ()),
            *getattr(answer, "entries", ()),
            *getattr(answer, "filter_results", ()),
        ):
            assert result.error_code == ErrorCode.NONE, result
    client.close()


def allow(topic: str) -> CreateAclsRequest:
    acl = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        principal=str(ALICE),
        host="*",
        operation=AclOperation.CREATE,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[acl])


def forbid(topic: str) -> DeleteAclsRequest:
    wanted = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=[wanted])


def user(name: str) -> AlterUserScramCredentialsRequest:
    made = ScramCredentialUpsertion(
        name=name, mechanism=2, iterations=8_192, salt=b"salt", salted_password=b"x" * 64
    )
    return AlterUserScramCredentialsRequest(upsertions=[made])


def limit(key: str, value: float | None) -> Any:
    return quota(value, key, ("user", "alice"))


async def all_hold(cluster: Cluster, rules: Rules) -> None:
    await cluster.until(lambda: all(rules_of(each) == rules for each in cluster.brokers.values()))


async def test_rules_hold_on_every_broker_after_kills_and_starts(cluster: Cluster) -> None:
    produced, mutations = "producer_byte_rate", "controller_mutation_rate"
    await tell(cluster, 2, allow("a"), user("alice"), limit(produced, 5.0))
    await tell(cluster, 3, allow("b"), limit(mutations, 7.0))
    await all_hold(cluster, ({"a", "b"}, {"alice"}, {produced: 5.0, mutations: 7.0}))
    leader = cluster.controller
    assert leader is not None

    cluster.kill(leader.node_id)
    others = sorted(cluster.brokers)
    await tell(cluster, others[0], forbid("a"), user("bob"))
    await tell(cluster, others[1], limit(mutations, None), limit(produced, 9.0))

    rules: Rules = ({"b"}, {"alice", "bob"}, {produced: 9.0})
    await all_hold(cluster, rules)
    await cluster.start(leader.node_id, security=SECURITY)
    await all_hold(cluster, rules)


async def test_rules_come_by_a_snapshot_to_a_new_disk(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_log, "SNAPSHOT_AFTER_RECORDS", 10)
    await tell(cluster, 2, allow("a"), user("alice"), limit("producer_byte_rate", 5.0))
    leader = cluster.controller
    assert leader is not None
    wiped = next(each for each in (3, 2) if each != leader.node_id)
    cluster.kill(wiped)
    await tell(cluster, leader.node_id, allow("b"), forbid("a"))
    await grow(cluster, leader)
    cluster.files[wiped] = MemoryFiles()

    new = await cluster.start(wiped, security=SECURITY)

    assert new.quorum.start_offset > 0
    assert rules_of(new) == ({"b"}, {"alice"}, {"producer_byte_rate": 5.0})


async def test_a_client_over_its_quota_waits_at_the_broker_that_passes_on(
    cluster: Cluster,
) -> None:
    await tell(cluster, 1, allow("a"), allow("b"), limit("controller_mutation_rate", 1.0))
    leader = cluster.controller
    assert leader is not None
    other = next(each for each in cluster.brokers if each != leader.node_id)
    server = cluster._servers[other]
    channel = InProcessChannel(server, (f"node-{other}", 9092))
    channel.principal = ALICE
    alice = Rpc(channel, KafkaSettings(bootstrap=["127.0.0.1:1"]))
    await alice.agree()
    topics = [
        CreateTopicsRequest(
            topics=[CreatableTopic(name=each, num_partitions=100, replication_factor=1)]
        )
        for each in ("a", "b")
    ]

    first = await alice.ask(topics[0])
    over = await alice.ask(topics[1])
    waiting = asyncio.ensure_future(alice.ask(MetadataRequest()))
    async with asyncio.timeout(WAIT_S):
        await (await cluster.client_of(other)).ask(MetadataRequest())

    assert (first.topics[0].error_code, first.throttle_time_ms) == (ErrorCode.NONE, 0)
    assert over.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert over.throttle_time_ms > 80_000
    assert not waiting.done()
    waiting.cancel()
