"""Which topic names exist: Kafka's rule, checked before a name comes near a file."""

import re

NAME_LENGTH_MAX = 249  # with `-<partition>` behind it, a directory name still fits 255 bytes
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "Topic name is invalid: it is empty"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: {len(name)} characters, where {NAME_LENGTH_MAX} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return "Topic name is invalid: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def collision_key(name: str) -> str:
    """Equal for names that Kafka's metrics cannot tell apart ('.' and '_' are the same there)."""
    return name.replace(".", "_")
