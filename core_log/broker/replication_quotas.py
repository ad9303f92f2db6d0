"""How fast the throttled replicas of this broker may be copied (KIP-73)."""

from headwater.core_log.foundation.clock import Clock
from headwater.core_log.model.replica_placement import (
    EVERY,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    partitions_on,
)
from headwater.core_log.replication.metadata import MetadataChanges, MetadataImage, Topic
from headwater.core_log.security.quotas import SampledRate

HELD_MS_MIN, HELD_MS_MAX = 100, 1_000
"""A shorter wait would make room for few bytes only, each time for a request of its own. A longer
one would hold back replicas after their limit was changed."""


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
