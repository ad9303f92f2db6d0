"""Which partition of an internal topic keeps a group or a transactional id: as in Kafka."""

from functools import lru_cache

INT_MAX = 0x7FFFFFFF


@lru_cache(1_024)
def partition_of(name: str, partition_count: int) -> int:
    """Java's `String.hashCode`, made positive, modulo the partitions."""
    hash_code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hash_code = (hash_code * 31 + (high << 8 | low)) & 0xFFFFFFFF
    signed = hash_code - (1 << 32) if hash_code > INT_MAX else hash_code
    return (0 if signed == -INT_MAX - 1 else abs(signed)) % partition_count
