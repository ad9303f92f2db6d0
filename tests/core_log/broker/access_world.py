"""A cluster with what the cases name, and all their answers, for ours and for Apache Kafka."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from headwater.core_log.protocol.error_codes import ErrorCode
from headwater.core_log.protocol.message import Request
from headwater.core_log.protocol.messages import (
    add_partitions_to_txn,
    create_acls,
    create_topics,
    find_coordinator,
    init_producer_id,
    offset_commit,
)
from headwater.core_log.security.acls import (
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.core_log.broker.access_cases import CASES, Case, Grant, show
from tests.core_log.broker.access_requests import GROUP, ORDERS, OTHER, TXN, Facts

Answer = TypeVar("Answer")
Ask = Callable[..., Awaitable[Any]]
"""ask(request, version): the answer over one connection, which has a principal."""

ROOT, WRONG = "root", "mallory"
"""The super user; and a user who may do everything, with other names."""
TRIES = 100
NOT_YET = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


def right_user(case: Case) -> str:
    return f"right-{CASES.index(case)}"


def users() -> list[str]:
    return [ROOT, WRONG, *map(right_user, CASES)]


def wrong_acls() -> Iterator[Acl]:
    """Yields every operation on other names, and on names that begin otherwise."""
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
            who = f"User:{WRONG}"
            yield Acl(kind, "zz", pattern, who, "*", AclOperation.ALL, Permission.ALLOW)


def all_acls() -> list[Acl]:
    given = [grant.acl(f"User:{right_user(case)}") for case in CASES for grant in case.grants]
    return [*wrong_acls(), *given]


def creations(acls: list[Acl]) -> create_acls.CreateAclsRequest:
    return create_acls.CreateAclsRequest(
        creations=[
            create_acls.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )


async def prepare(ask: Ask) -> Facts:
    """Makes what the cases name, as the super user."""
    names = (ORDERS, OTHER, "doomed", "doomed by id")
    made = await ask(
        create_topics.CreateTopicsRequest(
            topics=[
                create_topics.CreatableTopic(
                    name=name.replace(" ", "-"), num_partitions=1, replication_factor=1
                )
                for name in names
            ],
            timeout_ms=30_000,
        )
    )
    ids = {name: each.topic_id for name, each in zip(names, made.topics, strict=True)}
    by_name = {each.name: each.topic_id for each in made.topics}
    ids = {name: by_name[name.replace(" ", "-")] for name in ids}
    for key_type, key in ((0, GROUP), (1, TXN)):
        find = find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        await until(ask, find, lambda answer: answer.coordinators[0].error_code)
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    commit = offset_commit.OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        topics=[
            offset_commit.OffsetCommitRequestTopic(name=name, partitions=[part])
            for name in (ORDERS, OTHER)
        ],
    )
    await until(ask, commit, lambda answer: answer.topics[0].partitions[0].error_code, 9)
    init = init_producer_id.InitProducerIdRequest(
        transactional_id=TXN, transaction_timeout_ms=60_000
    )
    writer = await until(ask, init, lambda answer: answer.error_code)
    facts = Facts(ids, writer.producer_id, writer.producer_epoch)
    add = add_partitions_to_txn.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN,
        v3_and_below_producer_id=facts.producer_id,
        v3_and_below_producer_epoch=facts.producer_epoch,
        v3_and_below_topics=[
            add_partitions_to_txn.AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])
        ],
    )
    error = lambda said: (  # noqa: E731
        said.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
    )
    await until(ask, add, error, 3)
    return facts


async def until(
    ask: Ask,
    request: Request[Answer],
    error_of: Callable[[Any], int],
    version: int | None = None,
) -> Any:
    """Asks until the cluster is ready for it."""
    for _ in range(TRIES):
        answer = await ask(request, version)
        code = ErrorCode(error_of(answer))
        if code is ErrorCode.NONE:
            return answer
        assert code in NOT_YET, f"{type(request).__name__}: {code.name}"
        await asyncio.sleep(0.1)
    raise AssertionError(f"{type(request).__name__} is not answered")


async def play(connect: Callable[[str | None], Awaitable[Ask]]) -> str:
    """Returns what nobody, the wrong and the right principal are told, case by case. `connect`
    gives a connection of a user, or of nobody."""
    root = await connect(ROOT)
    facts = await prepare(root)
    created = await root(creations(all_acls()))
    assert not any(each.error_code for each in created.results)
    nobody, wrong = await connect(None), await connect(WRONG)
    lines = []
    for case in CASES:
        request = case.make(facts)
        lines.append(case.name)
        for who, ask in (("nobody", nobody), ("wrong", wrong)):
            lines.append(f"  {who}  {show(await ask(request, case.version))}")
        right = await connect(right_user(case))
        lines.append(f"  right  {show(await right(request, case.version))}")
    return "\n".join(lines) + "\n"


def grants_without(case: Case, missing: Grant) -> list[Acl]:
    return [each.acl("User:alice") for each in case.grants if each != missing]
