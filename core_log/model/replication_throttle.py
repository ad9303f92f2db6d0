"""Kafka's names of the settings that throttle replicas (KIP-73)."""

import re

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
EVERY_REPLICA = "*"
"""In place of a list of partition:broker."""
REPLICA = re.compile(r"[0-9]+:[0-9]+", re.ASCII)
EVERY = frozenset({-1})
"""In place of the partitions of a topic: all of them."""


def check_throttled(value: object) -> str | None:
    assert isinstance(value, tuple), "only lists have members"
    if value == (EVERY_REPLICA,) or all(map(REPLICA.fullmatch, value)):
        return None
    return f"value must be {EVERY_REPLICA}, or a list of partition:broker"


def partitions_on(broker_id: int, text: str) -> frozenset[int]:
    """Returns the partitions whose replicas on this broker are throttled, from a valid list."""
    names = [each.strip() for each in text.split(",") if each.strip()]
    if EVERY_REPLICA in names:
        return EVERY
    pairs = (each.split(":") for each in names)
    return frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
