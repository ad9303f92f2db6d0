"""The one thing the broker reads in a consumer's own metadata: the topics it subscribes to."""

from struct import Struct, error

_SHORT, _INT = Struct(">h"), Struct(">i")


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics named in a consumer protocol's subscription; None where these bytes are not one."""
    try:
        count = _INT.unpack_from(metadata, _SHORT.size)[0]
        position, topics = _SHORT.size + _INT.size, set()
        for _ in range(count):
            length = _SHORT.unpack_from(metadata, position)[0]
            start = position + _SHORT.size
            position = start + length
            if length < 0 or position > len(metadata):
                return None
            topics.add(metadata[start:position].decode())
    except (error, UnicodeDecodeError):
        return None
    return frozenset(topics)
