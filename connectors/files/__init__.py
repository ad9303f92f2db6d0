"""Files as a source: local or in S3, new ones, growing ones and rewritten ones."""
