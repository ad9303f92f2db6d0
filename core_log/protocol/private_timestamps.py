"""Timestamps by which ListOffsets tells what compaction took; only our own broker knows them."""

# The answer carries the same timestamp beside the offset, so that a broker which took the number
# for a time and searched for it cannot be mistaken for one that knows.

CLEANED_TO = -101
"""Below the answered offset compaction may have removed older values of a key; 0 if none yet."""

DELETES_DROPPED_TO = -102
"""Below the answered offset compaction may have removed tombstones; 0 if none yet."""
