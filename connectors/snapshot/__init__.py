"""Parts that snapshots of all databases share: rate limit, time window, lookups by key."""
