"""Access to the log: principals, how they prove who they are, and what they may do."""
