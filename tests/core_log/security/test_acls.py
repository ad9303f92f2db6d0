"""The authorizer decides as Kafka's StandardAuthorizer does."""

from pathlib import Path

from headwater.core_log.security.acls import (
    ANSWERS_KEPT_MAX,
    CLUSTER_NAME,
    Acl,
    AclOperation,
    Authorizer,
    PatternType,
    Permission,
    ResourceType,
    java_address,
    problem_of,
)
from headwater.core_log.security.principal import CLUSTER, Principal
from tests.core_log.security.questions import answers

DECISIONS = Path("tests/golden/authorizer/decisions.txt")
ALICE = Principal("alice")
QUESTIONS = {"ask": 6, "any": 5, "filter": 8}
"""The fields of each kind of question; the answer is behind them."""


def rule(name: str, pattern_type: PatternType = PatternType.LITERAL) -> Acl:
    return Acl(
        ResourceType.TOPIC,
        name,
        pattern_type,
        "User:alice",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )


def may_read(authorizer: Authorizer, name: str) -> bool:
    return authorizer.allows(ALICE, "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, name)


def test_decisions_are_those_that_kafka_has_made() -> None:
    golden = DECISIONS.read_text().splitlines()
    lines = []
    for line in golden:
        parts = line.split("\t")
        lines.append("\t".join(parts[: QUESTIONS.get(parts[0], len(parts))]))

    ours = list(answers(lines))

    assert ours == [line for line in golden if line.split("\t")[0] in QUESTIONS]
    assert len(ours) == 1_800


def test_other_acls_change_an_answer_that_was_kept() -> None:
    authorizer = Authorizer()
    assert not may_read(authorizer, "orders")

    authorizer.use([rule("ord", PatternType.PREFIXED)])
    allowed = may_read(authorizer, "orders")
    authorizer.use([])

    assert allowed
    assert not may_read(authorizer, "orders")


def test_answers_about_many_names_are_not_all_kept() -> None:
    authorizer = Authorizer()
    authorizer.use([rule("*")])

    allowed = [may_read(authorizer, f"t{each}") for each in range(2 * ANSWERS_KEPT_MAX + 5)]

    assert all(allowed)
    assert len(authorizer._answers) <= ANSWERS_KEPT_MAX


def test_addresses_are_compared_as_java_writes_them() -> None:
    written = [java_address(each) for each in ("10.0.0.7", "::1", "::ffff:10.0.0.7", "in-process")]

    assert written == ["10.0.0.7", "0:0:0:0:0:0:0:1", "10.0.0.7", "in-process"]


def test_a_principal_without_a_type_is_refused() -> None:
    named = Acl(
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        "alice",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )

    assert problem_of(rule("orders")) is None
    assert problem_of(named) == "The principal must be TYPE:NAME, such as User:alice"


def test_a_guard_of_brokers_lets_everybody_do_all_else() -> None:
    guard = Authorizer([CLUSTER], guards_nodes_only=True)

    def may(who: Principal, operation: AclOperation) -> bool:
        return guard.allows(who, "127.0.0.1", operation, ResourceType.CLUSTER, CLUSTER_NAME)

    assert may(ALICE, AclOperation.ALTER)
    assert not may(ALICE, AclOperation.CLUSTER_ACTION)
    assert may(CLUSTER, AclOperation.CLUSTER_ACTION)
