"""Quotas of clients as in Kafka: their entities, which one holds, rates of use, and the wait until
they are kept."""

from collections import deque
from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from math import isfinite
from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""Kafka's types of entities."""
DEFAULT = ""
"""The name of an entity that stands for all without one of their own; no other name is empty."""
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
FRACTION_MAX = 1e-6
WINDOW_MS = 1_000
WINDOWS = 11
"""Kafka's `quota.window.num`: ten whole windows and the present one."""
KEPT_MS = WINDOWS * WINDOW_MS
MS_PER_S = 1_000


class QuotaKey(StrEnum):
    """The resource that a quota limits."""

    PRODUCED = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    FETCHED = "consumer_byte_rate"
    """Bytes of Fetch responses per second."""
    REQUESTS = "request_percentage"
    """Time that requests take; 100 is one event loop, all of it."""
    MUTATIONS = "controller_mutation_rate"
    """Partitions created and deleted per second."""
    CONNECTIONS = "connection_creation_rate"
    """Connections accepted per second."""


WHOLE_MAX: Mapping[QuotaKey, int] = {
    QuotaKey.PRODUCED: LONG_MAX,
    QuotaKey.FETCHED: LONG_MAX,
    QuotaKey.CONNECTIONS: INT_MAX,
}
"""The largest value of the keys that take whole numbers."""
OF_CLIENTS = frozenset(QuotaKey) - {QuotaKey.CONNECTIONS}
OF_ADDRESSES = frozenset({QuotaKey.CONNECTIONS})


class QuotaEntity(NamedTuple):
    """The entity of a quota: None where a part does not matter, `DEFAULT` for all others."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> list[tuple[str, str | None]]:
        """Returns types and names as Kafka's messages have them: None is the default."""
        pairs = zip((USER, CLIENT_ID, IP), self, strict=True)
        return [(kind, name or None) for kind, name in pairs if name is not None]


class InvalidQuota(ValueError):
    """An entity or a value that no quota can have; the message is Kafka's."""


def entity_of(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Raises `InvalidQuota`, with Kafka's words, for what is no entity. The last of two parts of
    one type counts, as in Kafka."""
    names = dict(parts)
    if not names:
        raise InvalidQuota("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuota(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidQuota(f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise InvalidQuota(
                "Invalid quota entity combination, IP entity should"
                "not be combined with User or ClientId"
            )
        return QuotaEntity(ip=_address(names[IP]))
    return QuotaEntity(
        *(names[each] or DEFAULT if each in names else None for each in (USER, CLIENT_ID))
    )


def _address(name: str | None) -> str:
    if name is None:
        return DEFAULT
    known = normal_address(name)
    if known is None:
        raise InvalidQuota(f"{name} is not a valid IP or resolvable host.")
    return known


def normal_address(text: str) -> str | None:
    """Returns one form of an address, whose forms are many in IPv6; None for what is none."""
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found)


def check_value(entity: QuotaEntity, key: str, value: float) -> QuotaKey:
    """Returns the key; raises `InvalidQuota`, with Kafka's words, if it or its value cannot be."""
    allowed = OF_CLIENTS if entity.ip is None else OF_ADDRESSES
    known = next((each for each in allowed if each == key), None)
    if known is None:
        raise InvalidQuota(f"Invalid configuration key {key}")
    if not value > 0:
        raise InvalidQuota(f"Quota {key} must be greater than 0")
    if not isfinite(value):
        raise InvalidQuota(f"Quota {key} must be finite")
    largest = WHOLE_MAX.get(known)
    if largest is not None:
        if value > largest:
            kind = "an INT" if largest == INT_MAX else "a LONG"
            raise InvalidQuota(f"Proposed value for {key} is too large for {kind}.")
        if value % 1.0 > FRACTION_MAX:
            raise InvalidQuota(f"{key} cannot be a fractional value.")
    return known


class Meter(NamedTuple):
    """The clients that are counted together: all with this user and client id; None is any."""

    user: str | None
    client_id: str | None


class QuotaTable:
    """The quotas of one key. The most specific one that matches a client holds, in Kafka's order:
    a user's are stronger than those of a client id."""

    def __init__(self, limits: Mapping[QuotaEntity, float]) -> None:
        self._limits = limits

    def find(self, user: str, client_id: str) -> tuple[Meter, float] | None:
        """Returns what counts together with this client, and its limit; None without one. A
        client without an id has the quotas of its user only."""
        whole, of_user, of_client = (
            Meter(user, client_id),
            Meter(user, None),
            Meter(None, client_id),
        )
        for meter, entity in (
            (whole, QuotaEntity(user, client_id)),
            (whole, QuotaEntity(user, DEFAULT)),
            (of_user, QuotaEntity(user)),
            (whole, QuotaEntity(DEFAULT, client_id)),
            (whole, QuotaEntity(DEFAULT, DEFAULT)),
            (of_user, QuotaEntity(DEFAULT)),
            (of_client, QuotaEntity(None, client_id)),
            (of_client, QuotaEntity(None, DEFAULT)),
        ):
            if not client_id and meter.client_id is not None:
                continue
            limit = self._limits.get(entity)
            if limit is not None:
                return meter, limit
        return None


def limits_of(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: QuotaKey
) -> dict[QuotaEntity, float]:
    return {entity: values[key] for entity, values in quotas.items() if key in values}


class SampledRate:
    """A rate per second over the last windows."""

    def __init__(self, *, is_simple: bool = False) -> None:
        """A simple one counts from its first second; it is Kafka's SimpleRate, for replication. The
        other is for clients, and leaves them a burst of ten seconds."""
        self._is_simple = is_simple
        self._samples = deque[list[float]](maxlen=WINDOWS + 1)
        """The begin, the last event and the sum of each window."""

    def record(self, value: float, now_ms: int) -> None:
        if not self._samples or now_ms - self._samples[-1][0] >= WINDOW_MS:
            self._samples.append([now_ms, now_ms, 0.0])
        last = self._samples[-1]
        last[1], last[2] = now_ms, last[2] + value

    def total(self, now_ms: int) -> float:
        while self._samples and now_ms - self._samples[0][1] >= KEPT_MS:
            self._samples.popleft()
        return sum(each[2] for each in self._samples)

    def per_s(self, now_ms: int) -> float:
        return self.total(now_ms) / (self._window_ms(now_ms) / MS_PER_S)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time after which the rate is at its limit, if nothing more is recorded."""
        rate = self.per_s(now_ms)
        return round((rate - limit) / limit * self._window_ms(now_ms)) if rate > limit else 0

    def room(self, limit: float, now_ms: int) -> int:
        """Returns how much may be recorded now until the rate is at its limit. That is never more
        than one window's worth, whatever was left unused before."""
        total = self.total(now_ms)
        begun_ms, _, present = self._samples[-1] if self._samples else (now_ms, now_ms, 0.0)
        if now_ms - begun_ms >= WINDOW_MS:
            present = 0.0
        left = limit * self._window_ms(now_ms) / MS_PER_S - total
        return max(0, int(min(left, limit * WINDOW_MS / MS_PER_S - present)))

    def _window_ms(self, now_ms: int) -> int:
        """Returns the length that the total is divided by: at least ten whole windows, so that the
        first second of a client does not count as all of its time; or else at least one."""
        oldest_ms = self._samples[0][0] if self._samples else now_ms
        passed_ms = int(now_ms - oldest_ms)
        if self._is_simple:
            return max(passed_ms, WINDOW_MS)
        missing = WINDOWS - 1 - passed_ms // WINDOW_MS
        return max(1, passed_ms + max(0, missing) * WINDOW_MS)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing of it would be missed."""
        return not self.total(now_ms)


class TokenBucket:
    """Tokens that are refilled at a rate, up to those of all windows. They may be owed."""

    def __init__(self, limit: float, now_ms: int) -> None:
        self._tokens, self._filled_ms = limit * WINDOWS, now_ms

    def take(self, count: float, limit: float, now_ms: int) -> None:
        self._tokens = self._refill(limit, now_ms) - count

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Returns the time until no token is owed."""
        return max(0, round(-self._refill(limit, now_ms) / limit * MS_PER_S))

    def _refill(self, limit: float, now_ms: int) -> float:
        earned = limit * (now_ms - self._filled_ms) / MS_PER_S
        self._tokens = min(limit * WINDOWS, self._tokens + earned)
        self._filled_ms = now_ms
        return self._tokens
