"""Random quotas, and clients that use the log, for ours and for Kafka's own classes."""

from collections.abc import Iterator, Sequence
from random import Random

from headwater.core_log.broker.quotas import ClientQuotas
from headwater.core_log.security.quotas import DEFAULT, QuotaEntity, QuotaKey, SampledRate
from tests.fakes import SimulatedClock

USERS, CLIENTS = ("alice", "bob", "*", "-"), ("app", "etl", "*", "-")
LIMITS = (0, 1, 7, 100, 2.5, 10_000)
BYTES, MUTATIONS = QuotaKey.PRODUCED, QuotaKey.MUTATIONS


def random_use(random: Random) -> Iterator[str]:
    """Yields the lines of one world. A quota may change while clients use the log; it is the first
    that they meet, since Kafka begins to count before a client has one."""
    yield "new"
    for _ in range(random.randrange(1, 7)):
        user, client = random.choice(USERS), random.choice(CLIENTS)
        if (user, client) != ("-", "-"):
            yield f"limit {user} {client} {random.choice(LIMITS)}"
    now_ms = 1_000_000
    for _ in range(random.randrange(60)):
        now_ms += random.choice((0, 1, 40, 300, 999, 1_000, 5_000, 11_000, 60_000))
        if random.randrange(4) == 0:
            yield f"copy {random.choice((0, 1, 50, 40_000))} {now_ms}"
            continue
        user, client = random.choice(USERS[:2]), random.choice(("app", "etl", "other", "-"))
        kind = random.choice(("use", "use", "strict", "lenient"))
        yield f"{kind} {user} {client} {random.choice((0, 1, 3, 50, 999, 40_000))} {now_ms}"


def answers(lines: Sequence[str]) -> Iterator[str]:
    """Yields what our classes say."""
    clock = SimulatedClock(0)
    quotas, known = ClientQuotas(clock), dict[QuotaEntity, dict[str, float]]()
    copied = SampledRate(is_simple=True)
    for line in lines:
        words = line.split()
        if words == ["new"]:
            clock = SimulatedClock(0)
            quotas, known = ClientQuotas(clock), {}
            copied = SampledRate(is_simple=True)
            yield "new"
            continue
        if words[0] == "copy":
            copied.record(float(words[1]), int(words[2]))
            yield str(copied.per_s(int(words[2])))
            continue
        kind, user, client, value = words[0], words[1], words[2], float(words[3])
        if kind == "limit":
            entity = QuotaEntity(_named(user), _named(client))
            known.pop(entity, None)
            if value:
                known[entity] = {BYTES: value, MUTATIONS: value}
            quotas.use(known)
            yield "limit"
            continue
        clock.time_ms = int(words[4])
        client_id = "" if client == "-" else client
        if kind == "use":
            yield str(quotas.wait_ms(BYTES, user, client_id, value))
            continue
        is_allowed, wait_ms = quotas.take_mutations(
            user, client_id, int(value), is_strict=kind == "strict"
        )
        yield f"{str(is_allowed).lower()} {wait_ms}"


def _named(word: str) -> str | None:
    return {"-": None, "*": DEFAULT}.get(word, word)
