"""Random ACLs, and questions about them as lines of text, for our authorizer and for Kafka's."""

from collections.abc import Iterable, Iterator
from random import Random

from headwater.core_log.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    Authorizer,
    PatternType,
    Permission,
    ResourceType,
)
from headwater.core_log.security.principal import Principal, parse_principal

SUPER_USERS = (Principal("root"), Principal("CN=a,O=b"))
NAMES = ("a", "ab", "abc", "abd", "b", "*", "*a", "a*", "orders", "ord", "hardcode", "h", "é", "éa")
PRINCIPALS = ("User:alice", "User:bob", "User:root", "User:CN=a,O=b", "Group:alice", "User:*")
HOSTS = ("127.0.0.1", "10.0.0.7", "::1", "fe80::1:2", "::ffff:10.0.0.7")
ACL_HOSTS = ("*", "127.0.0.1", "10.0.0.7", "0:0:0:0:0:0:0:1", "fe80:0:0:0:0:0:1:2")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(each for each in AclOperation if each >= AclOperation.READ)
ANY = "<any>"


def random_world(random: Random) -> Iterator[str]:
    """Yields lines: some ACLs, then questions about them."""
    yield "world"
    operations = random.sample(OPERATIONS, 4)
    for _ in range(random.randint(0, 12)):
        fields = (
            random.choice(TYPES[:2]).name,
            random.choice(NAMES),
            random.choice((PatternType.LITERAL, PatternType.PREFIXED)).name,
            random.choice(PRINCIPALS),
            random.choice(ACL_HOSTS if random.random() < 0.4 else ("*",)),
            random.choice((AclOperation.ALL, *operations)).name,
            random.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)).name,
        )
        yield "\t".join(("acl", *fields))
    yield "use"
    for _ in range(40):
        who, host = random.choice(PRINCIPALS[:-1]), random.choice(HOSTS)
        operation = random.choice(
            (*operations, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
        )
        kind = random.choice(TYPES)
        name = random.choice(NAMES) + random.choice(("", "", "x"))
        yield "\t".join(("ask", who, host, operation.name, kind.name, name))
        yield "\t".join(("any", who, host, operation.name, kind.name))
    for _ in range(10):
        fields = (
            random.choice((ResourceType.ANY, *TYPES)).name,
            random.choice((ANY, *NAMES)),
            random.choice([each for each in PatternType if each]).name,
            random.choice((ANY, *PRINCIPALS)),
            random.choice((ANY, ANY, *ACL_HOSTS)),
            random.choice((AclOperation.ANY, AclOperation.ALL, *operations)).name,
            random.choice([each for each in Permission if each]).name,
        )
        yield "\t".join(("filter", *fields))


def answers(lines: Iterable[str]) -> Iterator[str]:
    """Yields every question with our answer, as Decisions.java prints Kafka's."""
    acls = list[Acl]()
    authorizer = Authorizer(SUPER_USERS)
    for line in lines:
        kind, *part = line.split("\t")
        if kind == "world":
            acls.clear()
        elif kind == "acl":
            acls.append(
                Acl(
                    ResourceType[part[0]],
                    part[1],
                    PatternType[part[2]],
                    part[3],
                    part[4],
                    AclOperation[part[5]],
                    Permission[part[6]],
                )
            )
        elif kind == "use":
            acls = list(dict.fromkeys(acls))
            authorizer.use(acls)
        elif kind == "filter":
            chosen = AclFilter(
                ResourceType[part[0]],
                None if part[1] == ANY else part[1],
                PatternType[part[2]],
                None if part[3] == ANY else part[3],
                None if part[4] == ANY else part[4],
                AclOperation[part[5]],
                Permission[part[6]],
            )
            yield f"{line}\t{sum(chosen.matches(each) for each in acls)}"
        else:
            who, host, operation, resource = part[:4]
            principal = parse_principal(who)
            asked = (principal, host, AclOperation[operation], ResourceType[resource])
            is_allowed = (
                authorizer.allows(*asked, part[4])
                if kind == "ask"
                else authorizer.allows_on_any(*asked)
            )
            yield f"{line}\t{'ALLOWED' if is_allowed else 'DENIED'}"
