"""ACLs are created, found and removed as by Kafka, and are there again after a start."""

from typing import Any
from uuid import UUID

from headwater.core_log.broker.broker import Broker
from headwater.core_log.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.core_log.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.core_log.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.core_log.replication.access_changes import CHANGES_PER_REQUEST_MAX, create_acls
from headwater.core_log.replication.metadata import MetadataImage
from headwater.core_log.security.acls import (
    Acl,
    AclOperation,
    Authorizer,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.principal import Principal
from tests.core_log.broker.in_memory import ask, started
from tests.fakes import MemoryFiles

ALICE = Principal("alice")
READ, TOPIC, ALLOW, LITERAL, PREFIXED, ANY, MATCH = 3, 2, 3, 3, 4, 1, 2


def creation(name: str = "orders", principal: str = "User:alice", **more: int) -> AclCreation:
    values: dict[str, Any] = {
        "resource_type": TOPIC,
        "operation": READ,
        "permission_type": ALLOW,
    } | more
    return AclCreation(resource_name=name, principal=principal, host="*", **values)


async def guarded(files: MemoryFiles) -> Broker:
    broker = await started(files)
    broker.authorizer = Authorizer()
    broker.authorizer.use(broker.image.acls.values())
    return broker


def may_read(broker: Broker, name: str) -> bool:
    assert broker.authorizer is not None
    return broker.authorizer.allows(ALICE, "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, name)


async def create(broker: Broker, *wanted: AclCreation) -> list[tuple[int, str | None]]:
    answer = await ask(broker, CreateAclsRequest(creations=wanted))
    return [(each.error_code, each.error_message) for each in answer.results]


async def test_an_acl_counts_at_once_and_after_a_start() -> None:
    files = MemoryFiles()
    broker = await guarded(files)

    created = await create(broker, creation("ord", resource_pattern_type=PREFIXED))
    allowed = may_read(broker, "orders")
    await broker.close()
    again = await guarded(files)

    assert created == [(0, "")]
    assert allowed
    assert may_read(again, "orders")
    assert not may_read(again, "other")
    await again.close()


async def test_an_acl_that_exists_is_created_again_without_a_record() -> None:
    broker = await guarded(MemoryFiles())
    await create(broker, creation())
    end_offset = broker.image.end_offset

    again = await create(broker, creation(), creation())

    assert again == [(0, ""), (0, "")]
    assert broker.image.end_offset == end_offset
    await broker.close()


async def test_each_invalid_acl_has_its_own_error() -> None:
    broker = await guarded(MemoryFiles())

    answers = await create(
        broker,
        creation(),
        creation(""),
        creation(resource_type=4),
        creation(resource_type=ANY),
        creation(resource_pattern_type=MATCH),
        creation(operation=ANY),
        creation(permission_type=ANY),
        creation(operation=99),
        creation(principal="alice"),
    )

    assert answers == [
        (0, ""),
        (42, "Invalid empty resource name"),
        (42, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (42, "Invalid resourceType ANY"),
        (42, "Invalid patternType MATCH"),
        (42, "Invalid operation ANY"),
        (42, "Invalid permissionType ANY"),
        (42, "Invalid operation UNKNOWN"),
        (42, "The principal must be TYPE:NAME, such as User:alice"),
    ]
    assert len(broker.image.acls) == 1
    await broker.close()


async def test_a_filter_finds_and_removes_what_a_name_falls_under() -> None:
    broker = await guarded(MemoryFiles())
    await create(
        broker,
        creation("orders"),
        creation("ord", resource_pattern_type=PREFIXED),
        creation("*"),
        creation("other"),
    )
    chosen: dict[str, Any] = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "orders",
        "pattern_type_filter": MATCH,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }

    found = await ask(broker, DescribeAclsRequest(**chosen))
    gone = await ask(broker, DeleteAclsRequest(filters=[DeleteAclsFilter(**chosen)] * 2))

    assert sorted(each.resource_name for each in found.resources) == ["*", "ord", "orders"]
    assert [len(each.matching_acls) for each in gone.filter_results] == [3, 3]
    assert [each.resource_name for each in broker.image.acls.values()] == ["other"]
    assert not may_read(broker, "orders")
    await broker.close()


async def test_acls_of_a_broker_that_asks_nobody_who_he_is_are_refused() -> None:
    broker = await started(MemoryFiles())
    any_filter: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }

    created = await create(broker, creation())
    found = await ask(broker, DescribeAclsRequest(**any_filter))
    gone = await ask(broker, DeleteAclsRequest(filters=[DeleteAclsFilter(**any_filter)]))

    assert [each[0] for each in created] == [54]
    assert found.error_code == 54
    assert [each.error_code for each in gone.filter_results] == [54]
    await broker.close()


def test_a_snapshot_has_the_acls() -> None:
    acl = Acl(
        ResourceType.GROUP,
        "g",
        PatternType.PREFIXED,
        "User:*",
        "10.0.0.7",
        AclOperation.ALL,
        Permission.DENY,
    )
    image, again = MetadataImage(), MetadataImage()
    ids = iter(range(100))
    decision = create_acls(image, [acl], lambda: UUID(int=next(ids)))
    changes = image.apply(decision.records, 1)

    taken = again.replace(image.records(), 1)

    assert changes.has_other_acls
    assert taken.has_other_acls
    assert list(again.acls.values()) == [acl]
    assert not again.replace(image.records(), 1).has_other_acls


def test_a_request_for_too_many_acls_is_refused_whole() -> None:
    decision = create_acls(MetadataImage(), [None] * (CHANGES_PER_REQUEST_MAX + 1), lambda: None)  # type: ignore[list-item, arg-type, return-value]

    assert not decision.records
