"""Kafka's murmur2 of a single key, as the Java client's partitioner uses it, without numpy or
Arrow."""

SEED, MIX, SHIFT = 0x9747B28C, 0x5BD1E995, 24
POSITIVE = 0x7FFFFFFF


def partition_of(key: bytes, partition_count: int) -> int:
    """Returns the partition of a key."""
    return (murmur2(key) & POSITIVE) % partition_count


def murmur2(key: bytes) -> int:
    """Returns the hash as an unsigned number of 32 bits."""
    mask, whole = 0xFFFFFFFF, len(key) // 4 * 4
    hashed = SEED ^ len(key)
    for index in range(0, whole, 4):
        word = int.from_bytes(key[index : index + 4], "little") * MIX & mask
        word = (word ^ word >> SHIFT) * MIX & mask
        hashed = hashed * MIX & mask ^ word
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * MIX & mask
    hashed = (hashed ^ hashed >> 13) * MIX & mask
    return hashed ^ hashed >> 15
