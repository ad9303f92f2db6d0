"""Names of the generations of a table's topic: `orders`, `orders.g2`."""

import re
from collections.abc import Collection

NUMBERED = re.compile(r"\.g([1-9]\d*)$")


def number_of(topic: str) -> int:
    """Returns the number of a generation; 1 for the first one, whose name has no suffix."""
    found = NUMBERED.search(topic)
    return int(found[1]) if found else 1


def first_of(topic: str) -> str:
    return NUMBERED.sub("", topic)


def generation_name(first: str, number: int) -> str:
    return f"{first}.g{number}"


def is_later(topic: str, *, than: str) -> bool:
    """Returns whether both are topics of one table and the other one is an earlier generation."""
    return first_of(topic) == first_of(than) and number_of(topic) > number_of(than)


def follow(topics: Collection[str], *, former: Collection[str]) -> bool:
    """Returns whether there are other topics and all are earlier generations of one of these."""
    others = set(former) - set(topics)
    return bool(others) and all(
        any(is_later(topic, than=each) for topic in topics) for each in others
    )
