"""What snapshots of every database share: rate limit, time window, lookups by key."""
