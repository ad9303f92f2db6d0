"""Users are described and changed by who may do so on the cluster, as in Kafka."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from headwater.core_log.broker.authorization import answer
from headwater.core_log.broker.broker import Broker
from headwater.core_log.broker.connection import Reply
from headwater.core_log.broker.dispatch import RequestContext
from headwater.core_log.broker.handlers.fetch import handle_fetch
from headwater.core_log.protocol import message
from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headwater.core_log.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headwater.core_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headwater.core_log.replication.metadata import METADATA_ID
from headwater.core_log.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    Authorizer,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.principal import Principal
from tests.core_log.broker.in_memory import SERVED, started
from tests.fakes import MemoryFiles

ALICE = RequestContext(0, "test", "127.0.0.1", "127.0.0.1", 9092, principal=Principal("alice"))


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = await started(MemoryFiles())
    broker.authorizer = Authorizer()
    yield broker
    await broker.close()


def grant(broker: Broker, operation: AclOperation) -> None:
    acl = Acl(
        ResourceType.CLUSTER,
        CLUSTER_NAME,
        PatternType.LITERAL,
        "User:alice",
        "*",
        operation,
        Permission.ALLOW,
    )
    assert broker.authorizer is not None
    broker.authorizer.use([acl])


def addition(user: str, mechanism: int = 1, iterations: int = 8_192) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=b"x" * 32,
    )


async def alter(broker: Broker, *users: str, gone: tuple[str, ...] = ()) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        upsertions=[addition(each) for each in users],
        deletions=[ScramCredentialDeletion(name=each, mechanism=1) for each in gone],
    )
    found = await answer(broker, SERVED[51], request, ALICE)
    return {each.user: each.error_code for each in found.results}


async def test_a_principal_without_a_grant_is_refused(broker: Broker) -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    assert await alter(broker, "a", gone=("b",)) == {"a": denied, "b": denied}

    told = await answer(broker, SERVED[50], DescribeUserScramCredentialsRequest(), ALICE)
    assert (told.error_code, told.results) == (denied, ())
    assert not broker.image.scram


async def test_the_right_to_alter_changes_users(broker: Broker) -> None:
    grant(broker, AclOperation.ALTER)

    assert await alter(broker, "a", "b") == {"a": ErrorCode.NONE, "b": ErrorCode.NONE}
    assert await alter(broker, gone=("b",)) == {"b": ErrorCode.NONE}

    assert broker.image.scram.keys() == {("a", "SCRAM-SHA-256")}


async def test_the_right_to_describe_shows_users_and_no_keys(broker: Broker) -> None:
    grant(broker, AclOperation.ALTER)
    await alter(broker, "a", "b")
    grant(broker, AclOperation.DESCRIBE)

    told = await answer(broker, SERVED[50], DescribeUserScramCredentialsRequest(), ALICE)

    shown = {
        each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in told.results
    }
    assert shown == {"a": [(1, 8_192)], "b": [(1, 8_192)]}


async def test_users_that_are_unknown_or_named_twice_are_answered_as_by_kafka(
    broker: Broker,
) -> None:
    grant(broker, AclOperation.ALTER)
    await alter(broker, "a")
    named = [UserName(name=each) for each in ("a", "a", "c")]

    told = await answer(broker, SERVED[50], DescribeUserScramCredentialsRequest(users=named), ALICE)

    assert [(each.user, each.error_code, each.error_message) for each in told.results] == [
        (
            "a",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: a",
        ),
        (
            "c",
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: c",
        ),
    ]


async def test_no_user_is_kept_where_every_program_can_act_as_a_broker() -> None:
    broker = await started(MemoryFiles())

    refused = await alter(broker, "a", gone=("b",))

    assert set(refused.values()) == {ErrorCode.SECURITY_DISABLED}
    assert not broker.image.scram
    await broker.close()


@pytest.mark.parametrize("topic", ["__cluster_metadata", METADATA_ID])
async def test_a_consumer_does_not_get_the_metadata_from_an_open_broker(
    topic: str | UUID,
) -> None:
    broker = await started(MemoryFiles())
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    if isinstance(topic, str):
        version, asked = 12, FetchTopic(topic=topic, partitions=[part])
    else:
        version, asked = 17, FetchTopic(topic_id=topic, partitions=[part])
    request = FetchRequest(max_bytes=1 << 20, topics=[asked])

    frame = memoryview(message.encode(request, version))
    context = ALICE._replace(api_version=version)
    reply = handle_fetch(broker, frame, 0, 1, context)

    assert isinstance(reply, Reply) and reply.chunks is not None
    [told] = reply.chunks
    assert isinstance(told, bytes)
    answer_position = 9  # length, correlation id, no tags
    said = message.decode(FetchResponse, memoryview(told), version, answer_position)
    [line] = said.responses[0].partitions
    assert line.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not line.records
    await broker.close()


async def test_users_behind_a_listener_that_asks_nobody_any_more_are_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = MemoryFiles()
    broker = await started(files)
    broker.authorizer = Authorizer()
    grant(broker, AclOperation.ALTER)
    await alter(broker, "a")
    await broker.close()

    broker = await started(files)

    assert "set security.sasl" in caplog.text
    await broker.close()
