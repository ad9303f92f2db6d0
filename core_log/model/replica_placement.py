"""Chooses the brokers of partitions, evenly and in different racks where there are enough; reads
the settings that throttle copies (KIP-73)."""

import re
from collections import Counter
from collections.abc import Mapping

from headwater.core_log.model.log import TopicPartition

Replicas = tuple[int, ...]
Racks = Mapping[int, str | None]
"""The brokers that may get replicas, each with its rack."""

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"
"""In place of a list of partition:broker."""
THROTTLED_REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
EVERY = frozenset({-1})
"""In place of the partitions of a topic: all of them."""


class ReplicaPlan:
    """Assignments that change step by step; the rest of a replica list stays where it is."""

    def __init__(self, assignments: Mapping[TopicPartition, Replicas], racks: Racks) -> None:
        self._before, self._racks = dict(assignments), dict(racks)
        self.replicas = dict(assignments)
        self._held = Counter(each for replicas in assignments.values() for each in replicas)
        self._led = Counter(replicas[0] for replicas in assignments.values() if replicas)

    @property
    def changes(self) -> dict[TopicPartition, Replicas]:
        return {at: each for at, each in self.replicas.items() if each != self._before[at]}

    def choose(self, at: TopicPartition, *, instead_of: int | None = None) -> int | None:
        """Returns the best broker for one more replica, or for one in place of another; None if all
        have one."""
        stay = [each for each in self.replicas[at] if each != instead_of]
        racks = {self._racks.get(each) for each in stay} - {None}
        free = [each for each in self._racks if each not in self.replicas[at]]
        return min(
            free,
            key=lambda each: (
                self._racks[each] in racks,
                self._held[each],
                self._led[each],
                each,
            ),
            default=None,
        )

    def add(self, at: TopicPartition) -> bool:
        """Gives the partition one more replica; returns whether there is a broker for it."""
        chosen = self.choose(at)
        if chosen is not None:
            self._set(at, (*self.replicas[at], chosen))
        return chosen is not None

    def leave(self, at: TopicPartition, broker: int) -> bool:
        """Puts another broker in the place of this one; returns whether there is one."""
        chosen = self.choose(at, instead_of=broker)
        if chosen is not None:
            places = (chosen if each == broker else each for each in self.replicas[at])
            self._set(at, tuple(places))
        return chosen is not None

    def balance(self) -> None:
        """Moves as few replicas as make the brokers' numbers differ by one at most, as far as racks
        allow it; then lets others lead."""
        while self._shift_replica():
            pass
        while self._shift_lead():
            pass

    def _shift_replica(self) -> bool:
        by_load = sorted(self._racks, key=lambda each: (self._held[each], each))
        for full in reversed(by_load):
            for free in by_load:
                if self._held[full] - self._held[free] < 2:
                    break
                at = self._find_shift(full, free)
                if at is not None:
                    places = (free if each == full else each for each in self.replicas[at])
                    self._set(at, tuple(places))
                    return True
        return False

    def _find_shift(self, full: int, free: int) -> TopicPartition | None:
        """Returns a partition whose replica may go from one broker to the other: one that it does
        not lead, if there is any."""
        found = [
            at
            for at, replicas in self.replicas.items()
            if full in replicas and free not in replicas and self._is_apart(at, full, free)
        ]
        return min(found, key=lambda at: (self.replicas[at][0] == full, at), default=None)

    def _is_apart(self, at: TopicPartition, full: int, free: int) -> bool:
        rack = self._racks[free]
        others = {self._racks.get(each) for each in self.replicas[at] if each != full}
        return rack is None or rack not in others or rack == self._racks[full]

    def _shift_lead(self) -> bool:
        for at, replicas in sorted(self.replicas.items()):
            first = replicas[0]
            other = min(replicas[1:], key=lambda each: (self._led[each], each), default=first)
            if self._led[first] - self._led[other] > 1:
                rest = (each for each in replicas if each != other)
                self._set(at, (other, *rest))
                return True
        return False

    def _set(self, at: TopicPartition, replicas: Replicas) -> None:
        former = self.replicas[at]
        self._held.subtract(former)
        self._led[former[0]] -= 1
        self._held.update(replicas)
        self._led[replicas[0]] += 1
        self.replicas[at] = replicas


def check_throttled(value: object) -> str | None:
    assert isinstance(value, tuple), "only lists have members"
    if value == (EVERY_REPLICA,) or all(map(THROTTLED_REPLICA.fullmatch, value)):
        return None
    return f"value must be {EVERY_REPLICA}, or a list of partition:broker"


def partitions_on(broker_id: int, text: str) -> frozenset[int]:
    """Returns the partitions whose replicas on this broker are throttled, from a valid list."""
    names = [each.strip() for each in text.split(",") if each.strip()]
    if EVERY_REPLICA in names:
        return EVERY
    pairs = (each.split(":") for each in names)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
