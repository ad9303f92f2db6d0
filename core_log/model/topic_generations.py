"""How the topics of one table are called that have followed one another: `orders`, `orders.g2`."""

import re
from collections.abc import Collection

NUMBERED = re.compile(r"\.g([1-9]\d*)$")


def number_of(topic: str) -> int:
    """1 for the first one, whose name says nothing of it."""
    found = NUMBERED.search(topic)
    return int(found[1]) if found else 1


def first_of(topic: str) -> str:
    return NUMBERED.sub("", topic)


def generation_name(first: str, number: int) -> str:
    return f"{first}.g{number}"


def is_later(topic: str, *, than: str) -> bool:
    """Whether both are of one table, and the other one came before."""
    return first_of(topic) == first_of(than) and number_of(topic) > number_of(than)


def follow(topics: Collection[str], *, former: Collection[str]) -> bool:
    """Whether all the other ones, and there are some, came before one of these."""
    others = set(former) - set(topics)
    return bool(others) and all(
        any(is_later(topic, than=each) for topic in topics) for each in others
    )
