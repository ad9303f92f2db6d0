"""Quotas of this broker: for the use of the log by clients, and for the copies of throttled
replicas (KIP-73)."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.replica_placement import (
    EVERY,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    partitions_on,
)
from headwater.core_log.protocol.fields import fields_of
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage, Topic
from headwater.core_log.security.principal import CLUSTER, LOCAL, Principal
from headwater.core_log.security.quotas import (
    DEFAULT,
    WINDOW_MS,
    WINDOWS,
    Meter,
    QuotaEntity,
    QuotaKey,
    QuotaTable,
    SampledRate,
    TokenBucket,
    limits_of,
    normal_address,
)

FREE = frozenset({CLUSTER, LOCAL})
"""Principals without quotas: other brokers, and our own commands and pipelines."""
EXEMPT = frozenset({17, 27, 36, 52, 53, 54, 56, 58, 59, 62, 63, 67, 82})
"""APIs that count for nobody, as in Kafka: of brokers, and of authentication."""
PERCENT = 100
METERS_KEPT = 10_000
"""Clients name themselves as they like: of more of them the oldest are forgotten."""
UNLIMITED = 0x7FFF_FFFF

HELD_MS_MIN, HELD_MS_MAX = 100, 1_000
"""A shorter wait would make room for few bytes only, each time for a request of its own. A longer
one would hold back replicas after their limit was changed."""

T = TypeVar("T")


class Muted(Protocol):
    """A client's connection, whose next requests can be kept waiting."""

    def mute(self, wait_ms: int) -> None: ...


class ClientQuotas:
    """The quotas of the cluster, and what each client has used of them on this broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.limits_clients = False
        """Whether any client has a quota, so that requests are counted."""
        self._tables: Mapping[QuotaKey, QuotaTable] = {}
        self._found: dict[tuple[QuotaKey, str, str], tuple[Meter, float] | None] = {}
        """The quotas that hold for clients, as far as they were looked up."""
        self._connection_limits: Mapping[str, float] = {}
        self._rates = OrderedDict[tuple[QuotaKey, Meter], SampledRate]()
        self._buckets = OrderedDict[Meter, TokenBucket]()
        self.throttled_count = 0
        """Requests whose client had to wait."""

    def use(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Takes the quotas of newer metadata. Former use stays counted."""
        limits = {key: limits_of(quotas, key) for key in QuotaKey}
        connections = limits.pop(QuotaKey.CONNECTIONS)
        self._connection_limits = {
            entity.ip or DEFAULT: limit for entity, limit in connections.items()
        }
        self._found.clear()
        self._tables = {key: QuotaTable(each) for key, each in limits.items() if each}
        self.limits_clients = bool(self._tables)

    def count(
        self, principal: Principal, client_id: str | None, size: int, peer: Muted | None
    ) -> "RequestUse | None":
        """Begins to count a request; None if no quota can hold for it."""
        if principal in FREE:
            return None
        return RequestUse(self, principal.name, client_id or "", size, peer)

    def limit_of(self, key: QuotaKey, user: str, client_id: str) -> float | None:
        """Returns the limit that holds for a client; None without one."""
        found = self._find(key, user, client_id)
        return None if found is None else found[1]

    def wait_ms(self, key: QuotaKey, user: str, client_id: str, value: float) -> int:
        """Records what was used; returns how long the client must wait."""
        found = self._find(key, user, client_id)
        if found is None:
            return 0
        meter, limit = found
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(key, meter)
        rate.record(value, now_ms)
        return rate.wait_ms(limit, now_ms)

    def take_fetched(self, user: str, client_id: str, size: int) -> tuple[int, bool]:
        """Records the bytes of an answer, unless its client must wait; returns how long that is,
        and whether they are recorded."""
        found = self._find(QuotaKey.FETCHED, user, client_id)
        if found is None:
            return 0, True
        meter, limit = found
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(QuotaKey.FETCHED, meter)
        was_idle = rate.is_idle(now_ms)
        rate.record(size, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if not wait_ms or was_idle:
            return wait_ms, True
        rate.record(-size, now_ms)
        return wait_ms, False

    def fetch_bytes_max(self, user: str, client_id: str) -> int:
        """Returns the largest answer that is not too large for the quota by itself."""
        limit = self.limit_of(QuotaKey.FETCHED, user, client_id)
        return UNLIMITED if limit is None else min(UNLIMITED, int(limit * (WINDOWS - 1)))

    def take_mutations(
        self, user: str, client_id: str, count: int, *, is_strict: bool
    ) -> tuple[bool, int]:
        """Returns whether so many partitions may be created or deleted now, and how long the
        client must wait. A strict quota takes nothing while tokens are owed."""
        found = self._find(QuotaKey.MUTATIONS, user, client_id)
        if found is None:
            return True, 0
        meter, limit = found
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.get(meter)
        if bucket is None:
            bucket = self._buckets[meter] = TokenBucket(limit, now_ms)
            _forget_oldest(self._buckets)
        wait_ms = bucket.wait_ms(limit, now_ms)
        if is_strict and wait_ms:
            return False, wait_ms
        bucket.take(count, limit, now_ms)
        return True, 0 if is_strict else bucket.wait_ms(limit, now_ms)

    def wait_ms_of_connection(self, host: str) -> int:
        """Records a new connection of an address; returns how long it is kept waiting until it is
        closed, or 0 if it is served."""
        limits = self._connection_limits
        if not limits:
            return 0
        address = normal_address(host) or host
        limit = limits.get(address) or limits.get(DEFAULT)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(QuotaKey.CONNECTIONS, Meter(address, None))
        rate.record(1, now_ms)
        wait_ms = min(rate.wait_ms(limit, now_ms), WINDOW_MS)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def _find(self, key: QuotaKey, user: str, client_id: str) -> tuple[Meter, float] | None:
        asked = (key, user, client_id)
        if asked not in self._found:
            if len(self._found) >= METERS_KEPT:
                self._found.clear()
            table = self._tables.get(key)
            self._found[asked] = None if table is None else table.find(user, client_id)
        return self._found[asked]

    def _rate(self, key: QuotaKey, meter: Meter) -> SampledRate:
        rate = self._rates.get((key, meter))
        if rate is None:
            rate = self._rates[key, meter] = SampledRate()
            _forget_oldest(self._rates)
        else:
            self._rates.move_to_end((key, meter))
        return rate


def _forget_oldest(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > METERS_KEPT:
        kept.popitem(last=False)


class RequestUse:
    """The use of one request. Each request is answered at once, and its client told how long it
    must wait; its connection is not read for so long (KIP-219)."""

    def __init__(
        self, quotas: ClientQuotas, user: str, client_id: str, size: int, peer: Muted | None
    ) -> None:
        """`peer` is None for a request that another broker has passed on."""
        self._quotas, self._user, self._client_id = quotas, user, client_id
        self._size, self._peer = size, peer
        self._time = asyncio.get_running_loop().time
        self._spent_s, self._begun_s = 0.0, self._time()
        self._mutations_ms = 0

    def begin(self) -> None:
        self._begun_s = self._time()

    def pause(self) -> None:
        """Called when the request waits, so that the event loop does not work for it."""
        if self._begun_s:
            self._spent_s += self._time() - self._begun_s
            self._begun_s = 0.0

    @property
    def fetch_bytes_max(self) -> int:
        return self._quotas.fetch_bytes_max(self._user, self._client_id)

    def on_produced(self, *, is_answered: bool) -> int:
        """Returns the wait after a Produce; a request without an answer takes no request time, as
        in Kafka."""
        wait_ms = self._record(QuotaKey.PRODUCED, self._size)
        return self._hold(max(wait_ms, self._requests_ms() if is_answered else 0))

    def on_fetched(self, size: int) -> tuple[int, bool]:
        """Returns the wait after a Fetch whose answer has so many bytes, and whether it may have
        them: who must wait gets an empty answer, of which nothing is counted. Only who has used
        nothing before gets it and waits afterwards: it could never have a batch that is too large
        for its quota."""
        requests_ms = self._requests_ms()
        if requests_ms:
            return self._hold(requests_ms), False
        wait_ms, is_kept = self._quotas.take_fetched(self._user, self._client_id, size)
        return self._hold(wait_ms), is_kept

    def permit(self, count: int, *, is_strict: bool) -> bool:
        """Whether the request may create or delete so many partitions."""
        is_allowed, wait_ms = self._quotas.take_mutations(
            self._user, self._client_id, count, is_strict=is_strict
        )
        self._mutations_ms = max(self._mutations_ms, wait_ms)
        return is_allowed

    def respond(self, response: T, version: int, *, wait_ms: int = 0) -> T:
        """Returns the response with the time that the client must wait; `wait_ms` is what another
        broker has said."""
        wait_ms = self._hold(max(self._requests_ms(), self._mutations_ms, wait_ms))
        if not wait_ms:
            return response
        told: Any = response
        kind: Any = type(response)
        known = {each.name for each in fields_of(kind) if each.is_in(version)}
        if "throttle_time_ms" not in known:
            return response
        changed: T = replace(told, throttle_time_ms=wait_ms)
        return changed

    def _requests_ms(self) -> int:
        self.pause()
        percent, self._spent_s = self._spent_s * PERCENT, 0.0
        return min(self._record(QuotaKey.REQUESTS, percent), WINDOW_MS)

    def _record(self, key: QuotaKey, value: float) -> int:
        return self._quotas.wait_ms(key, self._user, self._client_id, value)

    def _hold(self, wait_ms: int) -> int:
        if wait_ms:
            self._quotas.throttled_count += 1
            if self._peer is not None:
                self._peer.mute(wait_ms)
        return wait_ms


def count_on(reply: Any, use: RequestUse) -> Any:
    """Returns a handler's reply, which counts the time that it takes from now on."""
    use.pause()
    return Counted(reply, use) if isinstance(reply, Awaitable) else reply


class Counted(Generic[T]):
    """A handler's work, of which only the time counts that it keeps the event loop busy."""

    def __init__(self, work: Awaitable[T], use: RequestUse) -> None:
        self._work, self._use = work, use

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        go_on, argument = steps.send, None
        while True:
            self._use.begin()
            try:
                wanted = go_on(argument)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._use.pause()
            try:
                argument = yield wanted
                go_on = steps.send
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # a cancellation is for the handler
                go_on, argument = steps.throw, error


class ReplicationQuota:
    """The quota of what leaders on this broker send to followers, or of what followers on it fetch.
    As in Kafka everything that throttled replicas send or fetch counts, and only those that are not
    in sync are held back: nobody waits for them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.limit: float | None = None
        """Bytes per second; None for no limit."""
        self._throttled: dict[str, frozenset[int]] = {}
        self._rate = SampledRate(is_simple=True)

    def throttle(self, topic: str, partitions: frozenset[int]) -> None:
        """Says which partitions of a topic are throttled here."""
        if partitions:
            self._throttled[topic] = partitions
        else:
            self._throttled.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        if self.limit is None:
            return False
        found = self._throttled.get(topic)
        return found is not None and (found is EVERY or partition in found)

    def room(self) -> int:
        """Returns how many bytes may be copied now; with none a replica is held back."""
        assert self.limit is not None, "only with a limit something is throttled"
        return self._rate.room(self.limit, self._clock.monotonic_ms())

    def record(self, size: int) -> None:
        """Records what a throttled replica has copied."""
        self._rate.record(size, self._clock.monotonic_ms())

    @property
    def wait_ms(self) -> int:
        """The time after which a replica that is held back looks again."""
        if not self.limit:
            return HELD_MS_MAX
        needed_ms = self._rate.wait_ms(self.limit, self._clock.monotonic_ms())
        return min(max(needed_ms, HELD_MS_MIN), HELD_MS_MAX)


class ReplicationQuotas:
    """Both quotas of this broker, as the cluster's metadata says."""

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self._broker_id = broker_id
        self.leader, self.follower = ReplicationQuota(clock), ReplicationQuota(clock)
        self._sides = (
            (self.leader, LEADER_RATE, LEADER_REPLICAS),
            (self.follower, FOLLOWER_RATE, FOLLOWER_REPLICAS),
        )

    def load(self, image: MetadataImage) -> None:
        self._limit(image)
        for topic in image.topics.values():
            self._throttle(topic)

    def apply(self, image: MetadataImage, changes: MetadataChanges) -> None:
        self._limit(image)
        for topic in changes.topics_removed.values():
            for quota, _, _ in self._sides:
                quota.throttle(topic.name, frozenset())
        for topics in (changes.topics_created, changes.configs_changed):
            for topic in topics.values():
                self._throttle(topic)

    def _limit(self, image: MetadataImage) -> None:
        for quota, rate, _ in self._sides:
            text = image.broker_setting(self._broker_id, rate)
            quota.limit = None if text is None else float(text)

    def _throttle(self, topic: Topic) -> None:
        for quota, _, replicas in self._sides:
            named = topic.config.get(replicas, "")
            quota.throttle(topic.name, partitions_on(self._broker_id, named))
